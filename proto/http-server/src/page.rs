//! Builds a program's status page as a single HTML document. All content is escaped, because
//! names, messages and Envoy's errors are untrusted.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use sha2::{Digest as _, Sha256};

/// Paths at which the page is served.
pub const PATHS: [&str; 2] = ["/", "/status"];
const REFRESH_SECONDS: u32 = 10;
const MAX_ROWS: usize = 500;
const MAX_CHARACTERS: usize = 2000;

/// The response's `Content-Security-Policy` contains the digest of this style sheet.
const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.45 system-ui,sans-serif;margin:1.5rem auto;max-width:76rem;padding:0 1rem}\
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}\
p{margin:.4rem 0}ul{margin:.4rem 0;padding-left:1.2rem}\
table{border-collapse:collapse;width:100%;font-size:.92rem}\
th,td{text-align:left;vertical-align:top;padding:.28rem .7rem .28rem 0;border-bottom:1px solid #8884;overflow-wrap:anywhere}\
th{font-weight:600;white-space:nowrap}\
.good{color:#18794e}.bad{color:#ce2c31}.note{opacity:.7}\
@media(prefers-color-scheme:dark){.good{color:#3dd68c}.bad{color:#ff9592}}";

/// Text of a table cell, and whether it reports a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Plain text.
    Plain(String),
    /// Text that reports a good state.
    Good(String),
    /// Text that reports a problem.
    Bad(String),
}

impl Cell {
    /// Returns a cell that reports a problem if `is_fault`, and a good state otherwise.
    pub fn good_unless(is_fault: bool, text: impl Into<String>) -> Self {
        if is_fault {
            Self::Bad(text.into())
        } else {
            Self::Good(text.into())
        }
    }

    /// Returns a cell that reports a problem if `is_fault`, and a plain cell otherwise.
    pub fn plain_unless(is_fault: bool, text: impl Into<String>) -> Self {
        if is_fault {
            Self::Bad(text.into())
        } else {
            Self::Plain(text.into())
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

/// Visible rows of a table. Rows that report a problem come first.
#[derive(Clone, Debug)]
pub struct Rows<const N: usize> {
    faulty: Vec<[Cell; N]>,
    fine: Vec<[Cell; N]>,
    all: usize,
}

impl<const N: usize> Default for Rows<N> {
    fn default() -> Self {
        Self {
            faulty: Vec::new(),
            fine: Vec::new(),
            all: 0,
        }
    }
}

impl<const N: usize> Rows<N> {
    /// Adds a row. Calls `row` only if the row may be visible.
    pub fn add(&mut self, is_faulty: bool, row: impl FnOnce() -> [Cell; N]) {
        self.all += 1;
        let rows = if is_faulty {
            &mut self.faulty
        } else {
            &mut self.fine
        };
        if rows.len() < MAX_ROWS {
            rows.push(row());
        }
    }
}

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Starts a page with this title.
    pub fn new(title: &str) -> Self {
        let title = escaped(title);
        let body = format!("<h1>{title}</h1>\n");
        Self { title, body }
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: impl Into<Cell>) {
        let (class, text) = marked(text.into());
        self.put(format_args!("<p{class}>{text}</p>\n"));
    }

    /// Adds a list, unless it is empty.
    pub fn list(&mut self, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.body.push_str("<ul>\n");
        for item in items.iter().take(MAX_ROWS) {
            self.put(format_args!("<li>{}</li>\n", escaped(item)));
        }
        self.body.push_str("</ul>\n");
        self.rest(items.len());
    }

    /// Adds a heading and a table, unless it has no rows.
    pub fn table<const N: usize>(&mut self, title: &str, headings: [&str; N], rows: Rows<N>) {
        let Rows { faulty, fine, all } = rows;
        if all == 0 {
            return;
        }
        self.put(format_args!("<h2>{}</h2>\n", escaped(title)));
        self.body.push_str("<table>\n<thead><tr>");
        for heading in headings {
            self.put(format_args!("<th>{}</th>", escaped(heading)));
        }
        self.body.push_str("</tr></thead>\n<tbody>\n");
        for row in faulty.into_iter().chain(fine).take(MAX_ROWS) {
            self.body.push_str("<tr>");
            for cell in row {
                let (class, text) = marked(cell);
                self.put(format_args!("<td{class}>{text}</td>"));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody>\n</table>\n");
        self.rest(all);
    }

    fn rest(&mut self, all: usize) {
        if all > MAX_ROWS {
            let more = all - MAX_ROWS;
            self.put(format_args!("<p class=\"note\">… and {more} more</p>\n"));
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(text);
    }

    /// Returns the HTML document, which browsers reload regularly.
    pub fn html(&self) -> String {
        let Self { title, body } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
        )
    }

    /// Returns the document as an HTTP response.
    pub fn response(&self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.html()));
        let headers = response.headers_mut();
        // A base64 digest consists of letters, digits, `+`, `/` and `=`, which are valid in a
        // header.
        if let Ok(policy) = HeaderValue::from_str(&policy()) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
        for (name, value) in [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CACHE_CONTROL, "no-store"),
            (REFERRER_POLICY, "no-referrer"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn policy() -> String {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

fn marked(cell: Cell) -> (&'static str, String) {
    match cell {
        Cell::Plain(text) => ("", escaped(&text)),
        Cell::Good(text) => (" class=\"good\"", escaped(&text)),
        Cell::Bad(text) => (" class=\"bad\"", escaped(&text)),
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (index, character) in text.chars().enumerate() {
        if index == MAX_CHARACTERS {
            escaped.push('…');
            break;
        }
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            // Replace characters that change the text direction, and other control characters, with
            // U+FFFD.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                escaped.push('\u{fffd}');
            }
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror='a()'>\" & \u{202e}\u{1b}";

    #[test]
    fn inserted_text_is_escaped() {
        let mut page = Page::new(HOSTILE);
        page.paragraph(Cell::Bad(HOSTILE.to_owned()));
        page.list(&[HOSTILE.to_owned()]);
        let mut rows = Rows::default();
        rows.add(false, || [HOSTILE.into()]);
        page.table(HOSTILE, [HOSTILE], rows);
        let html = page.html();
        assert!(
            !html.contains("<script") && !html.contains("<img"),
            "{html}"
        );
        assert!(!html.contains('\u{202e}') && !html.contains('\u{1b}'));
        assert_eq!(html.matches("&lt;script&gt;alert(1)").count(), 7, "{html}");
    }

    #[test]
    fn content_policy_forbids_scripts() {
        let response = Page::new("x").response();
        let policy = response.headers()[CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-"),
            "{policy}"
        );
        assert!(
            !policy.contains("script") && !policy.contains("unsafe"),
            "{policy}"
        );
    }

    #[test]
    fn long_texts_are_cut() {
        let mut page = Page::new("x");
        page.paragraph("y".repeat(MAX_CHARACTERS + 1));
        assert!(page.html().contains("y…"));
    }

    #[test]
    fn problem_rows_go_first_and_all_are_counted() {
        let mut rows = Rows::default();
        let mut made = 0;
        for number in 0..MAX_ROWS * 3 {
            rows.add(number == MAX_ROWS * 2, || {
                made += 1;
                [Cell::Plain(format!("row {number}"))]
            });
        }
        let mut page = Page::new("x");
        page.table("rows", ["a"], rows);
        let html = page.html();
        assert_eq!(made, MAX_ROWS + 1);
        assert_eq!(html.matches("<td>").count(), MAX_ROWS);
        assert!(html.contains("<tbody>\n<tr><td>row 1000</td>"), "{html}");
        assert!(html.contains("… and 1000 more"));
        let mut empty = Page::new("x");
        empty.table("rows", ["a"], Rows::default());
        assert_eq!(empty.html(), Page::new("x").html());
    }
}
