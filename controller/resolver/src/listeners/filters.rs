//! Resolves the filters of listeners.
//!
//! A listener whose filters cannot be served keeps its hostname and rejects all requests.
//! Otherwise, a listener with a wider hostname and no filters might serve these requests.

use sesame_proto::refusal;
use sesame_proto::schema::{self, VirtualHost};

use super::listener::{CheckedListener, ListenerOwner};
use crate::backends::PolicedBackend;
use crate::backends::{BackendTarget, Backends, ResolvedRef};
use crate::context::ResolveContext;
use crate::filters::external_auth::{self, AuthorizeBy};
use crate::syntax::limits;
use sesame_kinds::api::{FilterType, ListenerFilter, ListenerFilters, Protocol};
use sesame_kinds::status::{Grounds, Reason, unsupported};

#[derive(Debug, Default)]
pub(crate) struct CheckedFilters<'w> {
    /// In order of execution.
    pub(crate) external_auth: Vec<schema::ExternalAuth>,
    /// True if the listener rejects all requests because a filter cannot be served.
    pub(crate) refuse: bool,
    /// Backends whose status, or whose policies' statuses, list the Gateway.
    pub(crate) policed: Vec<PolicedBackend<'w>>,
}

/// `meshed` is true if the Gateway sends traffic to a mesh.
pub(crate) fn resolve<'w>(
    owner: &ListenerOwner<'w>,
    listener: &mut CheckedListener<'w>,
    meshed: bool,
    backends: &mut Backends<'w>,
    cx: &mut ResolveContext<'w, '_>,
) {
    // After other errors, `hold` decides whether the listener rejects all requests.
    let was_good = listener.accepted.good();
    let withheld = listener.withheld.take();
    let withheld = withheld.map(|why| (Reason::UnsupportedValue, why));
    let filters = listener.spec.filters.as_ref();
    let list_fault = || check(listener, filters?, meshed).err();
    if let Some((reason, why)) = withheld.or_else(list_fault) {
        listener.accepted.refuse(reason, why);
        listener.filters.refuse = was_good;
        return;
    }
    let Some(ListenerFilters { requests }) = filters else {
        return;
    };
    let mut found = CheckedFilters::default();
    for (i, filter) in requests.iter().enumerate() {
        let auth = match read(i, filter) {
            Ok(auth) => auth,
            Err((reason, why)) => {
                let message = format!("filters.requests[{i}].{why}");
                listener.accepted.refuse(reason, message);
                found.refuse = was_good;
                continue;
            }
        };
        let AuthorizeBy {
            index: _,
            backend,
            traffic,
            mut asks,
        } = auth;
        let ResolvedRef { policed, target } =
            backends.resolve(owner.referrer(), backend, traffic, cx);
        found.policed.extend(policed);
        let follows = format!("requests get {}", refusal::HTTP);
        let at = format!("filters.requests[{i}].externalAuth.backendRef");
        match target {
            Ok(BackendTarget::Backend(name)) => {
                asks.backend = name;
                found.external_auth.push(asks);
                continue;
            }
            Ok(BackendTarget::Refused(why)) => {
                let name = &listener.spec.name;
                let message = format!("listener {name:?}: {at}: {why}; {follows}");
                cx.problems.add(owner.key(), message);
            }
            Err((reason, why)) => {
                let reason = match reason {
                    Reason::RefNotPermitted => reason,
                    _ => Reason::InvalidListenerFilterRef,
                };
                listener
                    .resolved
                    .refuse(reason, format!("{at}: {why}; {follows}"));
            }
        }
        found.refuse = was_good;
    }
    listener.filters = found;
}

fn check(
    listener: &CheckedListener<'_>,
    ListenerFilters { requests }: &ListenerFilters,
    meshed: bool,
) -> Result<(), Grounds> {
    let protocol = &listener.spec.protocol;
    if !matches!(protocol, Protocol::Http | Protocol::Https) {
        return Err(unsupported(format!(
            "filters must not be set with protocol {protocol}; only HTTP and HTTPS support filters"
        )));
    }
    if meshed && !requests.is_empty() {
        return Err(unsupported(
            "filters.requests is not supported on a Gateway that sends traffic to a mesh",
        ));
    }
    limits::entries(
        "filters.requests",
        requests.len(),
        0..=VirtualHost::MAX_EXTERNAL_AUTHS,
    )
    .map_err(|why| (Reason::InvalidListenerFilter, why))
}

/// Errors start with the field path relative to the filter.
fn read(index: usize, filter: &ListenerFilter) -> Result<AuthorizeBy<'_>, Grounds> {
    let ListenerFilter {
        type_,
        external_auth,
        extension_ref,
    } = filter;
    let invalid = |why: &str| (Reason::InvalidListenerFilter, why.to_owned());
    match (type_, external_auth, extension_ref) {
        (FilterType::ExternalAuth, Some(spec), None) => {
            external_auth::read(index, spec).map_err(|why| invalid(&format!("externalAuth.{why}")))
        }
        (FilterType::ExternalAuth, None, _) => {
            Err(invalid("externalAuth is required with type ExternalAuth"))
        }
        (FilterType::ExternalAuth, ..) => Err(invalid(
            "extensionRef must not be set with type ExternalAuth",
        )),
        (FilterType::ExtensionRef, None, Some(reference)) => Err(unsupported(format!(
            "extensionRef: {} {:?} is not a supported filter; expected type ExternalAuth",
            reference.kind.as_deref().unwrap_or_default(),
            reference.name
        ))),
        (FilterType::ExtensionRef, ..) => Err(invalid(
            "extensionRef, and nothing else, must be set with type ExtensionRef",
        )),
        (other, ..) => Err(unsupported(format!(
            "type {:?} is not supported on a listener; expected ExternalAuth",
            other.as_str()
        ))),
    }
}
