//! A table is rows of cells, each column as wide as its widest cell, nothing after the last.

use std::fmt;

use super::exit::one_line;

/// Rows of cells under a head.
#[derive(Debug)]
pub(super) struct Table {
    indent: usize,
    rows: Vec<Vec<String>>,
}

// === impl Table ===

impl Table {
    /// A table with this head, `indent` spaces from the left.
    pub(super) fn new(indent: usize, head: &[&str]) -> Self {
        Self { indent, rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| one_line(&cell)).into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let width = cell.chars().count();
                match widths.get_mut(column) {
                    Some(widest) => *widest = width.max(*widest),
                    None => widths.push(width),
                }
            }
        }
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
