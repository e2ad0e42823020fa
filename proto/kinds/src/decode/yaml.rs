//! Configures the YAML parser and converts its errors.

use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{MessageFormatter, Options, UserMessageFormatter};

use super::{DecodeError, DecodeLimits, Reason};
use crate::world::ObjectKey;

/// Replaces a message that could quote a Secret.
pub(super) const WITHHELD: &str = "not a valid Secret: YAML that does not parse, a field of the \
    wrong type, or `data` that is not base64 (details are withheld because they could reveal a \
    value)";

/// As in the API server, `yes` is not a boolean, an unquoted number is not a string, and duplicate
/// keys are errors.
pub(super) fn options(limits: &DecodeLimits) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: limits.depth,
            flow_nesting_limit: limits.depth,
            max_nodes: limits.nodes,
            max_events: limits.nodes.saturating_mul(2),
            max_aliases: limits.aliases,
            max_anchors: limits.aliases,
            max_recorded_anchor_events: 100_000,
            max_recorded_anchor_bytes: limits.object_bytes,
            max_merge_keys: limits.aliases,
            max_total_scalar_bytes: limits.list_bytes,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
        },
        emit_comments: false,
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        no_schema: true,
        with_snippet: false,
    }
}

pub(super) fn error(
    error: &serde_saphyr::Error,
    object: Option<ObjectKey>,
    secret: bool,
) -> DecodeError {
    let error = error.without_snippet();
    let line = error.location().map_or(1, |location| location.line());
    let message = if secret {
        WITHHELD.to_owned()
    } else {
        UserMessageFormatter
            .format_message(error)
            .chars()
            .take(500)
            .collect()
    };
    DecodeError::new(
        usize::try_from(line).unwrap_or(1).max(1),
        object,
        Reason::Invalid(message),
    )
}
