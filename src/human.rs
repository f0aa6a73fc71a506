//! Figures for people. JSON has the exact ones.

use std::time::Duration;

/// Bytes with a binary unit: `0 B`, `1023 B`, `1.5 KiB`, `20 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut shift = 10;
    // 1023.95 KiB and more would print as 1024.0 KiB, so it is shown in the next unit.
    while shift < 60 && tenths(count, shift) >= 10_240 {
        shift += 10;
    }
    let tenths = tenths(count, shift);
    let unit = UNITS[shift / 10 - 1];
    if tenths < 100 {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", (tenths + 5) / 10)
    }
}

/// `count` in tenths of `1 << shift`, rounded.
fn tenths(count: u64, shift: usize) -> u64 {
    let wide = (u128::from(count) * 10 + (1 << shift >> 1)) >> shift;
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// A time in its two largest units: `350ms`, `2.5s`, `2m 05s`, `3h 20m`, `4d 06h`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..10 => format!("{seconds}.{}s", time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The same for milliseconds, as JSON has them.
pub(crate) fn millis(time: u64) -> String {
    duration(Duration::from_millis(time))
}

/// A name that a peer chose, such as an application's id: what a terminal would obey instead of show
/// is written as `\u{1b}`.
pub(crate) fn name(name: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        if obeyed(c) { text.extend(c.escape_unicode()) } else { text.push(c) }
    }
    text
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_to_what_a_person_reads() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 * 1024, "10 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (20 << 20, "20 MiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (count, text) in cases {
            assert_eq!(bytes(count), text, "{count}");
        }
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(name("app-1 ü/x"), "app-1 ü/x");
        assert_eq!(name("a\x1b[2J\nb\u{202e}c"), "a\\u{1b}[2J\\u{a}b\\u{202e}c");
    }

    #[test]
    fn times_have_two_units_at_most() {
        let cases = [
            (0, "0ms"),
            (350, "350ms"),
            (2_590, "2.5s"),
            (59_999, "59s"),
            (125_000, "2m 05s"),
            (12_000_000, "3h 20m"),
            (367_200_000, "4d 06h"),
        ];
        for (time, text) in cases {
            assert_eq!(millis(time), text, "{time}");
        }
    }
}
