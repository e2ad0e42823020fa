//! The visible rows of a table that may have a hundred thousand: only these are built.

use sesame_http_server::page::{Cell, MOST_ROWS, Page};

/// First rows of a table. Rows that report a problem come first.
pub(super) struct FirstRows<const N: usize> {
    faulty: Vec<[Cell; N]>,
    fine: Vec<[Cell; N]>,
    all: usize,
}

impl<const N: usize> Default for FirstRows<N> {
    fn default() -> Self {
        Self {
            faulty: Vec::new(),
            fine: Vec::new(),
            all: 0,
        }
    }
}

impl<const N: usize> FirstRows<N> {
    /// Adds a row, which is built only if it may be visible.
    pub(super) fn add(&mut self, is_faulty: bool, row: impl FnOnce() -> [Cell; N]) {
        self.all += 1;
        let rows = if is_faulty {
            &mut self.faulty
        } else {
            &mut self.fine
        };
        if rows.len() < MOST_ROWS {
            rows.push(row());
        }
    }

    /// Shows the rows below a heading, or nothing without rows.
    pub(super) fn show(self, page: &mut Page, heading: &str, headings: [&str; N]) {
        let Self {
            faulty: mut rows,
            fine,
            all,
        } = self;
        if all == 0 {
            return;
        }
        rows.extend(fine);
        rows.truncate(MOST_ROWS);
        page.heading(heading);
        page.table_of(headings, rows, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_rows_go_first_and_all_are_counted() {
        let mut rows = FirstRows::default();
        let mut made = 0;
        for number in 0..MOST_ROWS * 3 {
            rows.add(number == MOST_ROWS * 2, || {
                made += 1;
                [Cell::Plain(format!("row {number}"))]
            });
        }
        let mut page = Page::new("x");
        rows.show(&mut page, "rows", ["a"]);
        let html = page.html(1);
        assert_eq!(made, MOST_ROWS + 1);
        assert_eq!(html.matches("<td>").count(), MOST_ROWS);
        assert!(html.contains("<tbody>\n<tr><td>row 1000</td>"), "{html}");
        assert!(html.contains("… and 1000 more"));
        let mut empty = Page::new("x");
        FirstRows::<1>::default().show(&mut empty, "rows", ["a"]);
        assert_eq!(empty.html(1), Page::new("x").html(1));
    }
}
