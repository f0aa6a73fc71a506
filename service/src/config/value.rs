//! A text to a value of its key's kind, and back for people.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use shuffle_protocol::spark_conf::{
    SizeUnit, SparkTime, parse_bool, parse_count, parse_port, parse_size, render_size, render_time,
};

use super::keys::{Kind, Off};

/// A checked value. Its `Display` is the shortest exact text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Bool`] and [`Kind::Unsupported`].
    Bool(bool),
    /// Of [`Kind::Port`].
    Port(u16),
    /// Of [`Kind::Count`] and [`Kind::CountOrSystem`], where it may be none.
    Count(Option<i64>),
    /// Of [`Kind::Time`]; none is off.
    Time(Option<Duration>),
    /// Of [`Kind::Size`], in bytes.
    Size(u64),
    /// Of [`Kind::Address`]; none is off.
    Address(Option<SocketAddr>),
    /// Of [`Kind::Paths`]; not empty, each once.
    Paths(Vec<PathBuf>),
    /// Of [`Kind::Path`].
    Path(PathBuf),
    /// Of [`Kind::Choice`] and [`Kind::Text`].
    Text(String),
}

impl Value {
    /// Reads a text; the error says what is wrong with it and what would be right.
    pub(super) fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        // Most often a variable in a template that was not filled in.
        if text.trim().is_empty() {
            return Err(format!("has no value; leave it out or use: {kind}"));
        }
        match kind {
            Kind::Bool | Kind::Unsupported => parse_bool(text).map(Self::Bool).map_err(text_of),
            Kind::Port => parse_port(text).map(Self::Port).map_err(text_of),
            Kind::Count { least, most } => {
                let count = parse_count(text).map_err(text_of)?;
                if count < least || count > most {
                    return Err(format!("out of range; use a {kind}"));
                }
                Ok(Self::Count(Some(count)))
            }
            Kind::CountOrSystem => match parse_count(text).map_err(text_of)? {
                count if count > i64::from(i32::MAX) => Err(format!("too large; use a {kind}")),
                count => Ok(Self::Count((count > 0).then_some(count))),
            },
            Kind::Time { bare, grain, least, off } => {
                if off == Off::Word && text.eq_ignore_ascii_case("off") {
                    return Ok(Self::Time(None));
                }
                let time = SparkTime::parse(text, bare).map_err(text_of)?.cut_to(grain);
                if off == Off::NotPositive && !time.is_positive() {
                    return Ok(Self::Time(None));
                }
                let time = time.to_duration().map_err(text_of)?;
                if time < least {
                    return Err(format!("too short; use a {kind}"));
                }
                Ok(Self::Time(Some(time)))
            }
            Kind::Size { least, most } => {
                let size = parse_size(text, SizeUnit::Byte).map_err(text_of)?;
                if size < least || size > most {
                    return Err(format!("out of range; use a {kind}"));
                }
                Ok(Self::Size(size))
            }
            Kind::Address { off } => {
                if off && text.eq_ignore_ascii_case("off") {
                    return Ok(Self::Address(None));
                }
                text.trim().parse().map(|address| Self::Address(Some(address))).map_err(|_| {
                    let off = if off { ", or off" } else { "" };
                    format!(
                        "not an IP address and a port; use one such as 0.0.0.0:7337 or [::]:7337{off} \
                         (names are not looked up)"
                    )
                })
            }
            Kind::Paths => {
                let mut roots: Vec<PathBuf> = Vec::new();
                for root in text.split(',') {
                    let root = absolute(root.trim())?;
                    // Removal below it would be removal anywhere.
                    if root.parent().is_none() {
                        return Err("/ would allow every directory; name narrower roots".to_owned());
                    }
                    if !roots.contains(&root) {
                        roots.push(root);
                    }
                }
                Ok(Self::Paths(roots))
            }
            Kind::Path => absolute(text.trim()).map(Self::Path),
            Kind::Choice(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(text.trim()))
                .map(|&word| Self::Text(word.to_owned()))
                .ok_or_else(|| format!("not a choice; use {kind}")),
            Kind::Text => Ok(Self::Text(text.trim().to_owned())),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Port(port) => write!(f, "{port}"),
            Self::Count(Some(count)) => write!(f, "{count}"),
            Self::Count(None) => f.write_str("-1"),
            Self::Time(Some(time)) => f.write_str(&render_time(*time)),
            Self::Size(bytes) => f.write_str(&render_size(*bytes)),
            Self::Address(Some(address)) => write!(f, "{address}"),
            Self::Time(None) | Self::Address(None) => f.write_str("off"),
            Self::Paths(paths) => {
                for (i, path) in paths.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { "," } else { "" }, path.display())?;
                }
                Ok(())
            }
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// An absolute path without `//`, `/./` or a `/` at its end. `..` is refused: what it leads to
/// depends on links, and a root must be plain to read.
fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if text.is_empty() {
        return Err("has an empty path; take the comma too many away".to_owned());
    }
    if !path.is_absolute() {
        return Err(format!("{text:?} is not an absolute path; begin it with /"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} has .. in it; write the path without"));
    }
    Ok(path.components().collect())
}

fn text_of(error: impl fmt::Display) -> String {
    error.to_string()
}
