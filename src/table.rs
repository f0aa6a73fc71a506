//! Columns: with lines around them on a terminal, plain in a pipe. Never broken to fit: an id or a
//! path is there to be copied.

use std::io::IsTerminal as _;

use comfy_table::presets::{NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{Cell, Color, Table};

/// An empty table with this head.
pub(crate) fn new<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    if std::io::stdout().is_terminal() {
        table.load_style(UTF8_FULL_CONDENSED);
    } else {
        table.load_style(NOTHING);
    }
    table.set_header(head);
    if !std::io::stdout().is_terminal() {
        table.column_iter_mut().for_each(|column| {
            column.set_padding((0, 2));
        });
    }
    table
}

/// A cell in colour on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
pub(crate) fn coloured(cell: Cell, color: Color) -> Cell {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if no_color { cell } else { cell.fg(color) }
}

/// The table as text, without blanks at the ends of lines.
pub(crate) fn text(table: &Table) -> String {
    table.trim_fmt()
}
