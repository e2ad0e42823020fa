//! What is to be published, and what became of it: values.

use std::sync::Arc;

use sesame_proto::schema::Snapshot;

use crate::apply::Report;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_render::{Options, Rendered};

/// What is to be served.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The snapshot and the key pairs.
    pub packed: &'a Arc<EncodedSnapshot>,
    /// As for rendering.
    pub options: &'a Options,
    /// What they render to.
    pub rendered: &'a Rendered,
}

/// What is served instead of a candidate.
#[derive(Clone, Debug)]
pub struct Served {
    /// Without the culprits.
    pub snapshot: Snapshot,
    /// What it renders to, without the listeners that cannot be opened.
    pub rendered: Rendered,
}

/// Why what was accepted last goes on being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Envoy refuses, and nothing was found that could be left out. To be tried again when something changes.
    Refused {
        /// Its words.
        envoy_words: Vec<String>,
    },
    /// The search has not come to an end; to be gone on with.
    Searching {
        /// Envoy's words.
        envoy_words: Vec<String>,
    },
    /// Envoy could not be asked; to be tried again.
    NotYet {
        /// Why.
        reason: String,
    },
}

/// How a publication ended.
#[derive(Debug)]
pub enum Published {
    /// Envoy serves the candidate, or what is left of it.
    Accepted {
        /// Of the transaction.
        report: Report,
        /// What it serves instead, if something was left out.
        served: Option<Box<Served>>,
    },
    /// Nothing has changed.
    Kept(Kept),
}
