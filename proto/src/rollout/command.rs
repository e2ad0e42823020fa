//! Commands of operators, which name the revision for which they are meant.

use super::DIGITS;

/// A command for one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Release no further host.
    Pause,
    /// Begin the stage after this one, whatever the signals say. Stages count from 1.
    Resume {
        /// Stage that ends.
        stage: u32,
    },
    /// Return all hosts to the previous revision.
    Undo,
}

impl Command {
    /// Parses `pause/DIGEST`, `undo/DIGEST` or `resume/DIGEST/STAGE`. Also returns the digest.
    pub fn parse(text: &str) -> Option<(Self, &str)> {
        let mut parts = text.split('/');
        let (word, digest, stage) = (parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() || !is_digest(digest) {
            return None;
        }
        let command = match (word, stage) {
            ("pause", None) => Self::Pause,
            ("undo", None) => Self::Undo,
            ("resume", Some(stage)) => Self::Resume {
                stage: stage.parse().ok().filter(|stage| *stage > 0)?,
            },
            _ => return None,
        };
        Some((command, digest))
    }

    /// Returns the text that [`parse`](Self::parse) reads.
    pub fn text(self, digest: &str) -> String {
        match self {
            Self::Pause => format!("pause/{digest}"),
            Self::Undo => format!("undo/{digest}"),
            Self::Resume { stage } => format!("resume/{digest}/{stage}"),
        }
    }
}

fn is_digest(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == DIGITS && text.bytes().all(is_hex)
}
