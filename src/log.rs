//! Where log lines go: standard error, one line an event.

use std::io::{self, Stderr, Write};

use tracing_subscriber::fmt::MakeWriter;

/// Standard error for log lines that hold what a client sent.
///
/// An application may be called anything, a line break and a forged log line included. Control
/// characters within a line are therefore written as escapes. Colours are the formatter's own and are
/// left alone on a terminal; it escapes those in values itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneLine {
    pub(crate) colours: bool,
}

impl MakeWriter<'_> for OneLine {
    type Writer = Lines<Stderr>;

    fn make_writer(&self) -> Self::Writer {
        Lines { out: io::stderr(), colours: self.colours }
    }
}

/// Writes each buffer, which the formatter fills with one event, as one line.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    out: W,
    colours: bool,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let is_harmless = |byte: u8| !byte.is_ascii_control() || (self.colours && byte == b'\x1b');
        let (line, end) = match event.split_last() {
            Some((b'\n', line)) => (line, &b"\n"[..]),
            _ => (event, &b""[..]),
        };
        if line.iter().copied().all(is_harmless) {
            self.out.write_all(event)?;
        } else {
            let mut escaped = Vec::with_capacity(event.len() + 16);
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
        let mut lines = Lines { out: Vec::new(), colours };
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
    fn the_formatters_own_colours_pass_on_a_terminal() {
        assert_eq!(written("\x1b[32m INFO\x1b[0m a\tb\n", true), "\x1b[32m INFO\x1b[0m a\\tb\n");
    }
}
