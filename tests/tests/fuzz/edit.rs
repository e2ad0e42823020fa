//! Mutates bytes, lines and protobuf messages with lists of edits, which can be shrunk.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fields::{self, FieldEdit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Proto,
}

#[derive(Clone, Debug)]
pub(crate) struct EditedInput {
    seed: u16,
    edits: Vec<Edit>,
}

#[derive(Clone, Debug)]
enum Edit {
    Flip(u32, u8),
    Truncate(u32),
    Remove(u32, u16),
    Repeat(u32, u16, u8),
    Insert(u32, Vec<u8>),
    Splice(u16, u32, u16, u32),
    RemoveLine(u32),
    CopyLine(u32, u32),
    Indent(u32, u8),
    Value(u32, &'static str),
    Field(u32, FieldEdit),
}

/// Values at the edge of what parsers accept.
const EDGE_VALUES: [&str; 36] = [
    "",
    "null",
    "~",
    "-1",
    "0",
    "65536",
    "4294967296",
    "1e309",
    "-0",
    "true",
    "012",
    "[]",
    "{}",
    "[[[[[[[[[[[[",
    "{a: {b: {c: {d: {e: f}}}}}",
    "&a [*a, *a]",
    "*a",
    "!!binary x",
    "\"\\u0000\"",
    "\t",
    "%",
    "%REQ(x)%",
    "..",
    "../../etc/passwd",
    "*.",
    "*.*.a",
    "a..b",
    "/a/../b",
    "//",
    "127.0.0.1",
    "::1",
    "é\u{202e}",
    "9999-99-99T99:99:99Z",
    "-----BEGIN CERTIFICATE-----",
    "(a*)*b",
    "x-very-long-name-of-something-that-nobody-would-write-by-hand-because-it-is-longer-than-any-limit-of-the-api-and-then-goes-on-to-be-longer-than-253-characters-so-that-nothing-could-hold-it-whatever-that-is-and-whoever-would-want-to-hold-it-0",
];

const NUMBERS: [u64; 8] = [
    0,
    1,
    0x7f,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];

pub(crate) fn edited(form: Form) -> BoxedStrategy<EditedInput> {
    let edits = vec(edit(form), 0..6);
    (any::<u16>(), edits)
        .prop_map(|(seed, edits)| EditedInput { seed, edits })
        .boxed()
}

fn edit(form: Form) -> BoxedStrategy<Edit> {
    let at = any::<u32>;
    let word = || select(&EDGE_VALUES[..]);
    let bytes = prop_oneof![
        word().prop_map(|word| word.as_bytes().to_vec()),
        select(&NUMBERS[..]).prop_map(|number| number.to_be_bytes().to_vec()),
        Just([&[0xff; 9][..], &[1]].concat()),
        vec(any::<u8>(), 0..8),
    ];
    let plain = prop_oneof![
        3 => (at(), any::<u8>()).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        1 => at().prop_map(Edit::Truncate),
        1 => (at(), any::<u16>()).prop_map(|(at, length)| Edit::Remove(at, length)),
        1 => (at(), any::<u16>(), any::<u8>()).prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        2 => (at(), bytes.clone()).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        1 => (any::<u16>(), at(), any::<u16>(), at()).prop_map(|(seed, from, length, at)| Edit::Splice(seed, from, length, at)),
    ];
    match form {
        Form::Text => prop_oneof![
            2 => plain,
            2 => at().prop_map(Edit::RemoveLine),
            2 => (at(), at()).prop_map(|(from, to)| Edit::CopyLine(from, to)),
            1 => (at(), 0u8..9).prop_map(|(at, by)| Edit::Indent(at, by)),
            6 => (at(), word()).prop_map(|(at, word)| Edit::Value(at, word)),
        ]
        .boxed(),
        Form::Proto => {
            let field = prop_oneof![
                2 => Just(FieldEdit::Remove),
                1 => any::<u8>().prop_map(FieldEdit::Repeat),
                3 => select(&NUMBERS[..]).prop_map(FieldEdit::Number),
                3 => bytes.prop_map(FieldEdit::Bytes),
                1 => any::<u8>().prop_map(FieldEdit::Nest),
                2 => (1u8..40).prop_map(FieldEdit::Renumber),
            ];
            prop_oneof![
                1 => plain,
                4 => (at(), field).prop_map(|(at, edit)| Edit::Field(at, edit)),
            ]
            .boxed()
        }
    }
}

impl EditedInput {
    pub(crate) fn bytes(&self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = pick(seeds, self.seed).to_vec();
        for edit in &self.edits {
            bytes = edit.apply(bytes, seeds);
            // Larger inputs would only test the size limits again.
            bytes.truncate(4 << 20);
        }
        bytes
    }
}

impl Edit {
    fn apply(&self, mut bytes: Vec<u8>, seeds: &[Vec<u8>]) -> Vec<u8> {
        match self {
            Self::Flip(at, bit) => {
                if !bytes.is_empty() {
                    let at = within(*at, bytes.len() - 1);
                    bytes[at] ^= 1 << (bit % 8);
                }
            }
            Self::Truncate(at) => bytes.truncate(within(*at, bytes.len())),
            Self::Remove(at, length) => {
                bytes.drain(span(*at, *length, bytes.len()));
            }
            Self::Repeat(at, length, times) => {
                let span = span(*at, *length, bytes.len());
                let copies = bytes[span.clone()].repeat(usize::from(*times));
                bytes.splice(span.end..span.end, copies);
            }
            Self::Insert(at, inserted) => {
                let at = within(*at, bytes.len());
                bytes.splice(at..at, inserted.iter().copied());
            }
            Self::Splice(seed, from, length, at) => {
                let other = pick(seeds, *seed);
                let piece = other[span(*from, *length, other.len())].to_vec();
                let at = within(*at, bytes.len());
                bytes.splice(at..at, piece);
            }
            Self::Field(at, edit) => {
                if let Some(mut fields) = fields::parse(&bytes, 0) {
                    fields::edit(&mut fields, *at, edit);
                    return fields::encode(&fields);
                }
            }
            Self::RemoveLine(_) | Self::CopyLine(..) | Self::Indent(..) | Self::Value(..) => {
                return self
                    .apply_to_lines(&String::from_utf8_lossy(&bytes))
                    .into_bytes();
            }
        }
        bytes
    }

    fn apply_to_lines(&self, text: &str) -> String {
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let last = lines.len() - 1;
        match self {
            Self::RemoveLine(at) => {
                lines.remove(within(*at, last));
            }
            Self::CopyLine(from, to) => {
                let line = lines[within(*from, last)].clone();
                lines.insert(within(*to, last), line);
            }
            Self::Indent(at, by) => {
                let line = &mut lines[within(*at, last)];
                *line = " ".repeat(usize::from(*by)) + line.trim_start();
            }
            Self::Value(at, word) => {
                let line = &mut lines[within(*at, last)];
                // Matches YAML, JSON and Envoy's `name: value` statistics.
                let start = line
                    .rfind(": ")
                    .or_else(|| line.find("- "))
                    .map_or(0, |at| at + 2);
                let comma = if line.ends_with(',') { "," } else { "" };
                line.truncate(start);
                line.push_str(word);
                line.push_str(comma);
            }
            _ => {}
        }
        lines.join("\n")
    }
}

fn pick(seeds: &[Vec<u8>], index: u16) -> &[u8] {
    &seeds[usize::from(index) % seeds.len()]
}

/// Returns a position from 0 to `last`.
fn within(at: u32, last: usize) -> usize {
    usize::try_from(at).unwrap_or(0) % (last + 1)
}

/// Favors short spans, because they change less.
fn span(at: u32, length: u16, size: usize) -> std::ops::Range<usize> {
    let start = within(at, size);
    let length = usize::from(length) >> (at % 12);
    start..(start + length).min(size)
}
