//! Times and sizes (`JavaUtils.timeStringAs` and `byteStringAs`), and back to the shortest text.

use std::fmt;
use std::time::Duration;

use super::{Quantity, ValueError, java_trim};

/// A unit of time: what a number without one is meant in, and what a time is cut down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// `us`
    Micros,
    /// `ms`
    Millis,
    /// `s`
    Seconds,
    /// `m` or `min`
    Minutes,
    /// `h`
    Hours,
    /// `d`, of 24 hours
    Days,
}

impl TimeUnit {
    const LARGEST_FIRST: [Self; 6] =
        [Self::Days, Self::Hours, Self::Minutes, Self::Seconds, Self::Millis, Self::Micros];

    const fn micros(self) -> u64 {
        match self {
            Self::Micros => 1,
            Self::Millis => 1_000,
            Self::Seconds => 1_000_000,
            Self::Minutes => 60_000_000,
            Self::Hours => 3_600_000_000,
            Self::Days => 86_400_000_000,
        }
    }

    fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "us" => Self::Micros,
            "ms" => Self::Millis,
            "s" => Self::Seconds,
            "m" | "min" => Self::Minutes,
            "h" => Self::Hours,
            "d" => Self::Days,
            _ => return None,
        })
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Micros => "us",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Minutes => "min",
            Self::Hours => "h",
            Self::Days => "d",
        })
    }
}

/// A time as Spark writes it: whole microseconds, perhaps negative, of any size that can be
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SparkTime {
    /// At most 2^63 days.
    micros: i128,
}

impl SparkTime {
    /// Reads `120s`, `2min`, `-1`; a number without a unit is one of `bare`.
    pub fn parse(text: &str, bare: TimeUnit) -> Result<Self, ValueError> {
        let what = Quantity::Time;
        let lower = text.to_lowercase();
        let lower = java_trim(&lower);
        let (negative, digits) =
            lower.strip_prefix('-').map_or((false, lower), |digits| (true, digits));
        let (number, suffix) = number_and_suffix(digits).ok_or(ValueError::Malformed { what })?;
        let number: i128 = number.parse().map_err(|_| ValueError::TooLarge)?;
        let number = i64::try_from(if negative { -number } else { number })
            .map_err(|_| ValueError::TooLarge)?;
        let unit = match suffix {
            "" => bare,
            _ => TimeUnit::from_suffix(suffix)
                .ok_or_else(|| ValueError::UnknownUnit { what, unit: suffix.to_owned() })?,
        };
        Ok(Self { micros: i128::from(number) * i128::from(unit.micros()) })
    }

    /// The whole units in it, cut towards zero; what an `i64` cannot hold is its nearest value.
    /// This is what Spark's own code goes on with.
    #[must_use]
    pub fn to_unit(self, unit: TimeUnit) -> i64 {
        let whole = self.micros / i128::from(unit.micros());
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// Without what is less than one whole unit: a key that Spark reads in seconds is not `1500ms`
    /// but `1s`.
    #[must_use]
    pub fn cut_to(self, unit: TimeUnit) -> Self {
        let unit = i128::from(unit.micros());
        Self { micros: self.micros / unit * unit }
    }

    /// Whether it is after zero.
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.micros > 0
    }

    /// As a duration, [`Duration::MAX`] if there is none that long; refused if negative.
    pub fn to_duration(self) -> Result<Duration, ValueError> {
        let micros = u128::try_from(self.micros).map_err(|_| ValueError::Negative)?;
        let second = u128::from(TimeUnit::Seconds.micros());
        let Ok(seconds) = u64::try_from(micros / second) else { return Ok(Duration::MAX) };
        let rest = u64::try_from(micros % second).unwrap_or(0);
        Ok(Duration::from_secs(seconds) + Duration::from_micros(rest))
    }
}

/// The shortest exact text, `2min` rather than `120s`; [`SparkTime::parse`] reads it back. What is
/// less than a microsecond is dropped, because Spark has no way to write it.
#[must_use]
pub fn render_time(time: Duration) -> String {
    if time == Duration::MAX {
        return format!("{}{}", i64::MAX, TimeUnit::Days);
    }
    if time.as_micros() == 0 {
        return "0s".to_owned();
    }
    // Above 2^63 seconds not every one can be written: then it is the nearest below.
    let writable = |unit: TimeUnit| {
        let whole = time.as_micros() / u128::from(unit.micros());
        i64::try_from(whole).ok().map(|whole| format!("{whole}{unit}"))
    };
    let exact = |unit: &TimeUnit| time.as_micros().is_multiple_of(u128::from(unit.micros()));
    TimeUnit::LARGEST_FIRST
        .into_iter()
        .filter(exact)
        .find_map(writable)
        .or_else(|| TimeUnit::LARGEST_FIRST.into_iter().rev().find_map(writable))
        .unwrap_or_default()
}

/// A unit of size: what a number without one is meant in. Each is 1024 of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeUnit {
    /// `b`
    Byte,
    /// `k`, `kb` or `kib`
    Kibi,
    /// `m`, `mb` or `mib`
    Mebi,
    /// `g`, `gb` or `gib`
    Gibi,
    /// `t`, `tb` or `tib`
    Tebi,
    /// `p`, `pb` or `pib`
    Pebi,
}

impl SizeUnit {
    const LARGEST_FIRST: [Self; 6] =
        [Self::Pebi, Self::Tebi, Self::Gibi, Self::Mebi, Self::Kibi, Self::Byte];

    const fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Kibi => 1 << 10,
            Self::Mebi => 1 << 20,
            Self::Gibi => 1 << 30,
            Self::Tebi => 1 << 40,
            Self::Pebi => 1 << 50,
        }
    }

    /// The `…ib` forms are Spark 4's.
    fn from_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "b" => Self::Byte,
            "k" | "kb" | "kib" => Self::Kibi,
            "m" | "mb" | "mib" => Self::Mebi,
            "g" | "gb" | "gib" => Self::Gibi,
            "t" | "tb" | "tib" => Self::Tebi,
            "p" | "pb" | "pib" => Self::Pebi,
            _ => return None,
        })
    }
}

impl fmt::Display for SizeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Byte => "b",
            Self::Kibi => "k",
            Self::Mebi => "m",
            Self::Gibi => "g",
            Self::Tebi => "t",
            Self::Pebi => "p",
        })
    }
}

/// Reads `100m`, `64kb`, `1024` to bytes; a number without a unit is one of `bare`. At most
/// 2^63 − 1 bytes, as in Spark.
pub fn parse_size(text: &str, bare: SizeUnit) -> Result<u64, ValueError> {
    let what = Quantity::Size;
    let lower = text.to_lowercase();
    let lower = java_trim(&lower);
    let Some((number, suffix)) = number_and_suffix(lower) else {
        let fraction = lower.split_once('.').is_some_and(|(whole, rest)| {
            number_and_suffix(whole).is_some_and(|(_, suffix)| suffix.is_empty())
                && number_and_suffix(rest).is_some()
        });
        return Err(match fraction {
            true => ValueError::Fraction { what },
            false => ValueError::Malformed { what },
        });
    };
    let number: u64 = number.parse().map_err(|_| ValueError::TooLarge)?;
    let unit = match suffix {
        "" => bare,
        _ => SizeUnit::from_suffix(suffix)
            .ok_or_else(|| ValueError::UnknownUnit { what, unit: suffix.to_owned() })?,
    };
    number
        .checked_mul(unit.bytes())
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or(ValueError::TooLarge)
}

/// The shortest exact text, `64m` rather than `65536k`; [`parse_size`] reads it back.
#[must_use]
pub fn render_size(bytes: u64) -> String {
    let unit = SizeUnit::LARGEST_FIRST
        .into_iter()
        .find(|unit| bytes != 0 && bytes.is_multiple_of(unit.bytes()))
        .unwrap_or(SizeUnit::Byte);
    format!("{}{unit}", bytes / unit.bytes())
}

/// `[0-9]+` and `[a-z]*`, with nothing after it.
fn number_and_suffix(text: &str) -> Option<(&str, &str)> {
    let (number, suffix) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let well_formed = !number.is_empty() && suffix.bytes().all(|b| b.is_ascii_lowercase());
    well_formed.then_some((number, suffix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> SparkTime {
        SparkTime::parse(text, TimeUnit::Seconds).unwrap()
    }

    #[test]
    fn a_time_becomes_a_duration_if_it_can() {
        assert_eq!(time("1500ms").to_duration(), Ok(Duration::from_millis(1500)));
        assert_eq!(time("1500ms").cut_to(TimeUnit::Seconds), time("1s"));
        assert_eq!(time("0").to_duration(), Ok(Duration::ZERO));
        assert_eq!(time("-1").to_duration(), Err(ValueError::Negative));
        assert_eq!(time("9223372036854775807d").to_duration(), Ok(Duration::MAX));
        assert_eq!(
            time("9223372036854775807s").to_duration(),
            Ok(Duration::from_secs(u64::MAX / 2))
        );
        assert!(
            time("1us").is_positive() && !time("0d").is_positive() && !time("-1").is_positive()
        );
    }

    #[test]
    fn a_time_is_rendered_in_its_largest_whole_unit() {
        for (millis, text) in [
            (0, "0s"),
            (1, "1ms"),
            (1500, "1500ms"),
            (90_000, "90s"),
            (120_000, "2min"),
            (3_600_000, "1h"),
            (86_400_000 * 7, "7d"),
            (86_400_000 + 1000, "86401s"),
        ] {
            assert_eq!(render_time(Duration::from_millis(millis)), text);
        }
        assert_eq!(render_time(Duration::from_nanos(1_999)), "1us");
        assert_eq!(render_time(Duration::from_nanos(1)), "0s");
        assert_eq!(render_time(Duration::MAX), "9223372036854775807d");
    }

    #[test]
    fn a_size_is_rendered_in_its_largest_whole_unit() {
        for (bytes, text) in [
            (0, "0b"),
            (1, "1b"),
            (1023, "1023b"),
            (1024, "1k"),
            (1536, "1536b"),
            (100 << 20, "100m"),
            (1 << 40, "1t"),
            ((1 << 50) * 8191, "8191p"),
            (u64::MAX, "18446744073709551615b"),
        ] {
            assert_eq!(render_size(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in any::<String>()) {
            let _ = SparkTime::parse(&text, TimeUnit::Millis);
            let _ = parse_size(&text, SizeUnit::Byte);
        }

        #[test]
        fn whatever_can_be_written_is_read_and_rendered_and_read(
            number in any::<u64>().prop_flat_map(|most| 0..=most >> 1),
            unit in prop::sample::select(TimeUnit::LARGEST_FIRST.to_vec()),
        ) {
            let read = time(&format!("{number}{unit}")).to_duration().unwrap();
            prop_assert_eq!(time(&render_time(read)).to_duration(), Ok(read));
        }

        #[test]
        fn a_rendered_time_reads_back(micros in any::<u64>(), shift in 1..64_u32) {
            let duration = Duration::from_micros(micros >> shift);
            prop_assert_eq!(time(&render_time(duration)).to_duration(), Ok(duration));
        }

        #[test]
        fn any_duration_is_rendered_less_than_a_minute_short(
            seconds in any::<u64>(), nanos in 0..1_000_000_000_u32,
        ) {
            let duration = Duration::new(seconds, nanos);
            let read = time(&render_time(duration)).to_duration().unwrap();
            prop_assert!(read <= duration && duration - read < Duration::from_secs(60));
        }

        #[test]
        fn a_rendered_size_reads_back(bytes in 0..=u64::MAX >> 1, shift in 0..63_u32) {
            let bytes = bytes >> shift;
            prop_assert_eq!(parse_size(&render_size(bytes), SizeUnit::Pebi), Ok(bytes));
        }
    }
}
