//! The text form of `java.util.Properties`, as Spark reads it from a UTF-8 file.
//!
//! Lines end with `\n`, `\r` or `\r\n`. Blank lines, and lines whose first character is `#` or `!`,
//! are passed over. A line that ends with an odd number of backslashes goes on in the next one,
//! without that one's leading space. The key ends at the first `=`, `:`, space, tab or form feed
//! without a backslash before it; space and one `=` or `:` may follow. `\t \n \r \f` and `\uXXXX`
//! (a UTF-16 unit) stand for one character; a backslash before anything else is dropped. Spark then
//! takes the space off the ends of the value, but leaves `\r` and `\n` there.

use std::collections::HashSet;
use std::iter::Peekable;
use std::str::Chars;

use thiserror::Error;

/// One entry of a properties file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The key, unescaped. It may be empty.
    pub key: String,
    /// The value, unescaped and trimmed. It may be empty.
    pub value: String,
    /// The line on which the entry begins; the first line is 1.
    pub line: u32,
}

/// A `\u` that four hexadecimal digits do not follow. Java refuses the whole file for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "malformed \\uXXXX escape; write four hexadecimal digits after \\u, or \\\\u for a backslash"
)]
pub struct MalformedEscape {
    /// The line of the escape; the first line is 1.
    pub line: u32,
}

/// Reads a properties file. Of entries with the same key only the last is there; the order is that
/// of the file. The errors are all there are, in the order of the file.
pub fn parse_properties(text: &str) -> Result<Vec<Property>, Vec<MalformedEscape>> {
    let mut lines = LogicalLines { rest: text.chars().peekable(), line: 1 };
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    while let Some(LogicalLine { first, chars }) = lines.next_line() {
        let (key, value) = split(&chars);
        match (unescape(key), unescape(value)) {
            (Ok(key), Ok(value)) => {
                entries.push(Property { key, value: trim_value(&value).to_owned(), line: first });
            }
            (key, value) => errors.extend([key.err(), value.err()].into_iter().flatten()),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut seen = HashSet::with_capacity(entries.len());
    let mut winners = vec![false; entries.len()];
    for (entry, wins) in entries.iter().zip(&mut winners).rev() {
        *wins = seen.insert(entry.key.as_str());
    }
    drop(seen);
    let mut wins = winners.into_iter();
    entries.retain(|_| wins.next() == Some(true));
    Ok(entries)
}

/// A character and the number of the line it stood on.
type Placed = (char, u32);

/// A line with what continues it.
struct LogicalLine {
    first: u32,
    chars: Vec<Placed>,
}

/// A step-by-step copy of Java's own line reader, because its corners (a comment after an empty
/// continued line, a lone backslash at the end of the file) follow from its steps and no rule.
struct LogicalLines<'a> {
    rest: Peekable<Chars<'a>>,
    line: u32,
}

impl LogicalLines<'_> {
    fn next_line(&mut self) -> Option<LogicalLine> {
        let mut chars: Vec<Placed> = Vec::new();
        let mut first = self.line;
        let mut skip_space = true;
        let mut continued = false;
        let mut backslash = false;
        loop {
            let at = self.line;
            let Some(c) = self.take() else {
                if chars.is_empty() {
                    return None;
                }
                break;
            };
            let ends_line = matches!(c, '\n' | '\r');
            if skip_space {
                if is_space(c) || (!continued && ends_line) {
                    continue;
                }
                skip_space = false;
                continued = false;
            }
            if chars.is_empty() {
                first = at;
                if matches!(c, '#' | '!') {
                    while self.take().is_some_and(|c| !matches!(c, '\n' | '\r')) {}
                    skip_space = true;
                    continue;
                }
            }
            if !ends_line {
                chars.push((c, at));
                backslash = c == '\\' && !backslash;
                continue;
            }
            if chars.is_empty() {
                skip_space = true;
                continue;
            }
            if self.rest.peek().is_none() || !backslash {
                break;
            }
            chars.pop();
            skip_space = true;
            continued = true;
            backslash = false;
            if c == '\r' && self.rest.peek() == Some(&'\n') {
                self.take();
            }
        }
        if backslash {
            chars.pop();
        }
        Some(LogicalLine { first, chars })
    }

    /// The next character; counts the line when it ends one.
    fn take(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' || (c == '\r' && self.rest.peek() != Some(&'\n')) {
            self.line = self.line.saturating_add(1);
        }
        Some(c)
    }
}

/// The key and the value of a line, still escaped.
fn split(line: &[Placed]) -> (&[Placed], &[Placed]) {
    let mut backslash = false;
    let key_end = line
        .iter()
        .position(|&(c, _)| {
            let ends = !backslash && (matches!(c, '=' | ':') || is_space(c));
            backslash = c == '\\' && !backslash;
            ends
        })
        .unwrap_or(line.len());
    let (key, mut value) = line.split_at(key_end);
    let mut separated = false;
    while let [(c, _), rest @ ..] = value {
        let separator = !separated && matches!(c, '=' | ':');
        if !separator && !is_space(*c) {
            break;
        }
        separated |= separator;
        value = rest;
    }
    (key, value)
}

/// In UTF-16, since that is what an escape stands for. Half a pair cannot be kept in a `String` and
/// becomes U+FFFD.
fn unescape(escaped: &[Placed]) -> Result<String, MalformedEscape> {
    let mut out = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    let push = |out: &mut Vec<u16>, c: char| {
        out.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    };
    while let Some(&(c, line)) = rest.next() {
        if c != '\\' {
            push(&mut out, c);
            continue;
        }
        // A backslash is never last: the reader of lines takes that one away.
        match rest.next().map(|&(c, _)| c) {
            Some('u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    let digit = rest.next().and_then(|(c, _)| c.to_digit(16));
                    let digit = digit.and_then(|d| u16::try_from(d).ok());
                    unit = unit << 4 | digit.ok_or(MalformedEscape { line })?;
                }
                out.push(unit);
            }
            Some('t') => push(&mut out, '\t'),
            Some('n') => push(&mut out, '\n'),
            Some('r') => push(&mut out, '\r'),
            Some('f') => push(&mut out, '\u{c}'),
            Some(c) => push(&mut out, c),
            None => {}
        }
    }
    Ok(String::from_utf16_lossy(&out))
}

/// As Spark's `Utils.trimExceptCRLF`: a line end can only have come from an escape, so it was
/// meant.
fn trim_value(value: &str) -> &str {
    value.trim_matches(|c| c <= ' ' && c != '\r' && c != '\n')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<(String, u32)> {
        parse_properties(text).unwrap().into_iter().map(|p| (p.key, p.line)).collect()
    }

    #[test]
    fn an_entry_has_the_line_on_which_it_begins() {
        assert_eq!(
            lines("# one\r\n\r\na=1\r\nb=2 \\\r\n  3\r\nc\rd\n\n!\ne"),
            [("a".into(), 3), ("b".into(), 4), ("c".into(), 6), ("d".into(), 7), ("e".into(), 10)]
        );
        assert_eq!(lines("\\\n  \\\n a=1"), [("a".into(), 3)]);
    }

    #[test]
    fn the_last_of_equal_keys_wins_and_has_its_own_line() {
        let entries = parse_properties("a=1\nb=2\na=3\nb=4\nc=5").unwrap();
        let entry = |key: &str, value: &str, line| Property {
            key: key.to_owned(),
            value: value.to_owned(),
            line,
        };
        assert_eq!(entries, [entry("a", "3", 3), entry("b", "4", 4), entry("c", "5", 5)]);
    }

    #[test]
    fn every_malformed_escape_is_reported_with_its_line() {
        assert_eq!(
            parse_properties("a=1\nb=\\u12\nc\\u=\\uxyz\nd=1\\\n2\\\n\\u004"),
            Err([2, 3, 3, 6].map(|line| MalformedEscape { line }).to_vec())
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = parse_properties(&text);
        }

        #[test]
        fn nor_does_one_of_special_characters(text in "[\\\\=: \t\u{c}#!\n\rau0\u{1f600}]{0,40}") {
            let total = text.split('\n').count() + text.matches('\r').count();
            let line = match parse_properties(&text) {
                Ok(entries) => entries.iter().map(|e| e.line).max(),
                Err(errors) => errors.iter().map(|e| e.line).max(),
            };
            prop_assert!(line.unwrap_or(1) as usize <= total);
        }

        #[test]
        fn what_is_escaped_comes_back(key in any::<String>(), value in any::<String>()) {
            let escape = |text: &str| -> String {
                text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()
            };
            let entries = parse_properties(&format!("{}={}", escape(&key), escape(&value))).unwrap();
            prop_assert_eq!(entries.len(), 1);
            prop_assert_eq!(&entries[0].key, &key);
            prop_assert_eq!(entries[0].value.as_str(), trim_value(&value));
        }
    }
}
