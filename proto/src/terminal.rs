//! Text for terminals.

use std::fmt;

/// Returns a number and a noun, whose plural is formed with `s`.
pub fn counted<N: fmt::Display + PartialEq + Copy + From<u8>>(count: N, noun: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// Escapes control characters, which a terminal would interpret.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}
