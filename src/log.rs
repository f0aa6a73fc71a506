//! Where log lines go: standard error, one line an event.

use std::io::{self, Stderr, Write};

use shuffled_service::config::LogFormat;

use tracing_subscriber::fmt::MakeWriter;

/// The longest line. The directories of an application of a thousand executors fit; the id of one may be
/// as long as a message, and a peer must not fill a disk with a few of them.
const MAX_LINE: usize = 256 << 10;

/// Standard error for log lines that hold what a client sent.
///
/// An application may be called anything, a line break and a forged log line included. Control
/// characters within a line are therefore written as escapes. Colours are the formatter's own and are
/// left alone on a terminal; it escapes those in values itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneLine {
    pub(crate) colours: bool,
    pub(crate) format: LogFormat,
}

impl MakeWriter<'_> for OneLine {
    type Writer = Lines<Stderr>;

    fn make_writer(&self) -> Self::Writer {
        Lines { out: io::stderr(), colours: self.colours, format: self.format }
    }
}

/// Writes each buffer, which the formatter fills with one event, as one line.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    out: W,
    colours: bool,
    format: LogFormat,
}

/// What is written in place of a line that is too long.
fn cut(line: &[u8], format: LogFormat) -> Vec<u8> {
    let kept = String::from_utf8_lossy(&line[..MAX_LINE]);
    match format {
        LogFormat::Text => format!("{kept}... (cut, of {} bytes)", line.len()).into_bytes(),
        // Half an object is none.
        LogFormat::Json => serde_json::json!({
            "level": "WARN",
            "message": format!("A log line of {} bytes is cut", line.len()),
            "line": kept,
        })
        .to_string()
        .into_bytes(),
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let is_harmless = |byte: u8| !byte.is_ascii_control() || (self.colours && byte == b'\x1b');
        let (line, end) = match event.split_last() {
            Some((b'\n', line)) => (line, &b"\n"[..]),
            _ => (event, &b""[..]),
        };
        let cut = (line.len() > MAX_LINE).then(|| [&cut(line, self.format), end].concat());
        let (line, whole) = match &cut {
            Some(cut) => (&cut[..cut.len() - end.len()], &cut[..]),
            None => (line, event),
        };
        if line.iter().copied().all(is_harmless) {
            self.out.write_all(whole)?;
        } else {
            let mut escaped = Vec::with_capacity(whole.len() + 16);
            for &byte in line {
                if is_harmless(byte) {
                    escaped.push(byte);
                } else {
                    escaped.extend(byte.escape_ascii());
                }
            }
            escaped.extend_from_slice(end);
            self.out.write_all(&escaped)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &str, colours: bool) -> String {
        let mut lines = Lines { out: Vec::new(), colours, format: LogFormat::Text };
        lines.write_all(event.as_bytes()).unwrap();
        String::from_utf8(lines.out).unwrap()
    }

    #[test]
    fn c43_what_a_client_sent_cannot_begin_a_line_of_its_own() {
        let forged = "app=a\r\n2026-12-01 INFO all is well\x1b[2J\n";
        assert_eq!(written(forged, false), "app=a\\r\\n2026-12-01 INFO all is well\\x1b[2J\n");
        assert_eq!(written("app=ü-😀\n", false), "app=ü-😀\n");
    }

    #[test]
    fn a_line_without_end_has_one() {
        let long = format!("app={}\u{1b}\n", "ü".repeat(MAX_LINE));
        let text = written(&long, false);
        assert!(text.len() < MAX_LINE + 100);
        assert!(text.starts_with("app=üü"));
        assert!(text.ends_with(&format!("... (cut, of {} bytes)\n", long.len() - 1)));

        let mut lines = Lines { out: Vec::new(), colours: false, format: LogFormat::Json };
        lines.write_all(long.as_bytes()).unwrap();
        assert_eq!(lines.out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let object: serde_json::Value = serde_json::from_slice(&lines.out).unwrap();
        assert!(object["line"].as_str().unwrap().starts_with("app=üü"));
    }

    #[test]
    fn the_formatters_own_colours_pass_on_a_terminal() {
        assert_eq!(written("\x1b[32m INFO\x1b[0m a\tb\n", true), "\x1b[32m INFO\x1b[0m a\\tb\n");
    }
}
