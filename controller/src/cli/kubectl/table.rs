//! Formats tables in kubectl's style. Object content is untrusted, so control sequences must never
//! reach a terminal.

use comfy_table::{Table, presets};
use jiff::SignedDuration;
use sesame_proto::terminal::plain;

const NONE: &str = "<none>";
const COLUMN_GAP: u16 = 3;

pub(super) fn table(
    headings: &[&str],
    with_headings: bool,
    rows: Vec<Vec<String>>,
    none: &str,
) -> String {
    if rows.is_empty() {
        return format!("{none}\n");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if with_headings {
        table.set_header(headings);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(or_none(cell))));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, COLUMN_GAP));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn or_none(cell: &str) -> &str {
    if cell.is_empty() { NONE } else { cell }
}

pub(super) fn age(passed: SignedDuration) -> String {
    let seconds = passed.as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_aligned_and_escape_terminal_commands() {
        let rows = vec![
            vec!["a".to_owned(), "\u{1b}[2J".to_owned()],
            vec!["longer".to_owned(), String::new()],
        ];
        let bare = table(&["NAME", "WHY"], false, rows.clone(), "none");
        assert!(bare.starts_with("a        \\u{1b}[2J\n"), "{bare}");
        let text = table(&["NAME", "WHY"], true, rows, "none");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].ends_with("\\u{1b}[2J"), "{text}");
        assert_eq!(lines[2], "longer   <none>", "{text}");
        let column = lines[0].find("WHY");
        assert_eq!(lines[1].find('\\'), column, "{text}");
        assert_eq!(table(&["NAME"], true, Vec::new(), "none"), "none\n");
        assert_eq!(age(SignedDuration::from_secs(7200)), "2h");
    }
}
