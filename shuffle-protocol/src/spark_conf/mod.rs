//! The syntax of Spark's configuration: properties files, times, sizes, booleans, numbers.
//!
//! Only the syntax: which keys there are and what their values mean is the business of whoever
//! asks. Everything here takes a text and gives a value; what is taken and what is refused is the
//! same as in Spark's own classes (`tests/spark_conf/README.md`).
//!
//! ```
//! use shuffle_protocol::spark_conf::{SparkTime, TimeUnit, parse_properties, render_time};
//!
//! let entries = parse_properties("# ours\nspark.shuffle.cleaner.interval  2min\n").unwrap();
//! assert_eq!((entries[0].key.as_str(), entries[0].line), ("spark.shuffle.cleaner.interval", 2));
//! let interval = SparkTime::parse(&entries[0].value, TimeUnit::Seconds).unwrap();
//! assert_eq!(render_time(interval.to_duration().unwrap()), "2min");
//! ```

mod properties;
mod quantity;

use thiserror::Error;

pub use properties::{MalformedEscape, Property, parse_properties};
pub use quantity::{SizeUnit, SparkTime, TimeUnit, parse_size, render_size, render_time};

/// A value that Spark's syntax does not allow. The text says what is wrong with it and what would
/// be right, but not where it stood: that is for the caller to add.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Neither a whole number nor one with a unit.
    #[error("not a {what}; use {}", what.advice())]
    Malformed {
        /// What was asked for.
        what: Quantity,
    },
    /// A number with a point. Spark takes none.
    #[error("fractional values are not supported; use {}", what.advice())]
    Fraction {
        /// What was asked for.
        what: Quantity,
    },
    /// A number with a unit that does not exist.
    #[error("{unit:?} is not a unit of {what}; use {}", what.advice())]
    UnknownUnit {
        /// What was asked for.
        what: Quantity,
        /// The unit that was given, in lower case.
        unit: String,
    },
    /// More than an `i64` holds (of bytes, where a size is asked for).
    #[error("too large; the most is 2^63-1")]
    TooLarge,
    /// A time before zero where only a duration makes sense.
    #[error("must not be negative")]
    Negative,
    /// Something else than `true` or `false`.
    #[error("not a boolean; use true or false")]
    NotBoolean,
    /// Not a whole number.
    #[error("not a whole number; use digits only, such as 3")]
    NotNumber,
    /// Not a port.
    #[error("not a port; use a number from 0 to 65535")]
    NotPort,
}

/// What a [`ValueError`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// A span of time.
    Time,
    /// A number of bytes.
    Size,
}

impl Quantity {
    /// What would be right, close to Spark's words.
    fn advice(self) -> &'static str {
        match self {
            Self::Time => "us, ms, s, m or min, h or d, such as 50s, 100ms or 2min",
            Self::Size => "b, k, m, g, t or p, such as 50b, 100k or 250m",
        }
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Size => "size",
        })
    }
}

/// `true` or `false`, in any case and with space around it. Nothing else: not `yes`, not `1`.
pub fn parse_bool(text: &str) -> Result<bool, ValueError> {
    match java_trim(text) {
        t if t.eq_ignore_ascii_case("true") => Ok(true),
        t if t.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(ValueError::NotBoolean),
    }
}

/// A whole number, which may have a sign.
pub fn parse_count(text: &str) -> Result<i64, ValueError> {
    java_trim(text).parse().map_err(|e: std::num::ParseIntError| match e.kind() {
        std::num::IntErrorKind::PosOverflow => ValueError::TooLarge,
        _ => ValueError::NotNumber,
    })
}

/// A TCP port. 0 stands for any free one.
pub fn parse_port(text: &str) -> Result<u16, ValueError> {
    java_trim(text).parse().map_err(|_| ValueError::NotPort)
}

/// Without what Java's `String.trim` takes off: every character up to the space.
fn java_trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_true_or_false() {
        assert_eq!(parse_bool(" TRUE\t"), Ok(true));
        assert_eq!(parse_bool("False"), Ok(false));
        for text in ["", "yes", "1", "on", "truee"] {
            assert_eq!(parse_bool(text), Err(ValueError::NotBoolean), "{text}");
        }
    }

    #[test]
    fn counts_are_whole_numbers() {
        assert_eq!(parse_count(" -1 "), Ok(-1));
        assert_eq!(parse_count("+5"), Ok(5));
        assert_eq!(parse_count("9223372036854775807"), Ok(i64::MAX));
        assert_eq!(parse_count("9223372036854775808"), Err(ValueError::TooLarge));
        for text in ["", "1k", "1.0", "1 0", "0x1"] {
            assert_eq!(parse_count(text), Err(ValueError::NotNumber), "{text}");
        }
    }

    #[test]
    fn ports_fit_in_sixteen_bits() {
        assert_eq!(parse_port(" 7337"), Ok(7337));
        assert_eq!(parse_port("0"), Ok(0));
        for text in ["", "-1", "65536", "http"] {
            assert_eq!(parse_port(text), Err(ValueError::NotPort), "{text}");
        }
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let refusal = |text| SparkTime::parse(text, TimeUnit::Seconds).unwrap_err().to_string();
        assert_eq!(
            refusal("5sec"),
            "\"sec\" is not a unit of time; use us, ms, s, m or min, h or d, such as 50s, 100ms or 2min"
        );
        assert_eq!(
            parse_size("0.5g", SizeUnit::Byte).unwrap_err().to_string(),
            "fractional values are not supported; use b, k, m, g, t or p, such as 50b, 100k or 250m"
        );
    }
}
