//! `satisfy`: whether a request must pass all checks or one of them.

use sesame_proto::schema::AddressFilter;

use super::Annotations;

/// How source ranges apply.
#[derive(Default)]
pub(super) struct Satisfied {
    /// Clients that may send requests.
    pub(super) ranges: Option<AddressFilter>,
    /// Clients that need no credentials.
    pub(super) exempt: Option<AddressFilter>,
}

/// `ranges` are the source ranges, and `checks` are true if requests need a password or an
/// authorization service's permission. An invalid annotation rejects all requests.
pub(super) fn read(
    from: &mut Annotations<'_>,
    ranges: Option<AddressFilter>,
    checks: (bool, bool),
) -> Satisfied {
    let any = from.require("satisfy", |value| match value {
        "all" => Ok(false),
        "any" => Ok(true),
        other => Err(format!("{other:?} is unknown; expected all or any")),
    });
    match (any.unwrap_or_default(), checks) {
        (false, _) | (true, (false, false)) => {
            let exempt = None;
            return Satisfied { ranges, exempt };
        }
        (true, (true, true)) => {
            from.refuse(
                "satisfy",
                "any is not supported with both auth-type and auth-url; remove one of them",
            );
            return Satisfied::default();
        }
        (true, _) => {}
    }
    // As in ingress-nginx, a denied client needs credentials like any other.
    let exempt = ranges.filter(|ranges| !ranges.allow.is_empty());
    if exempt.is_none() {
        from.ignore(
            &["denylist-source-range"],
            "with satisfy any and without an allowlist, all clients need credentials",
        );
    }
    Satisfied {
        ranges: None,
        exempt,
    }
}
