//! Columns: with lines around them on a terminal, plain in a pipe.

use std::io::IsTerminal as _;

use comfy_table::presets::{NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{ContentArrangement, Table};

/// An empty table with this head.
pub(crate) fn new<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    if std::io::stdout().is_terminal() {
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.load_style(NOTHING);
    }
    table.set_header(head);
    table
}

/// The table as text, without blanks at the ends of lines.
pub(crate) fn text(table: &Table) -> String {
    table.trim_fmt()
}
