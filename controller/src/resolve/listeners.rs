//! What each listener of an object is: valid or not, distinct or not, and what may attach to it.
//!
//! A listener that is refused harms no other. Its routes are still judged and counted, because attachment
//! does not depend on the listener's own state (`ListenerStatus.attachedRoutes`).

use std::collections::HashMap;

use sesame_proto::schema;

use super::attach::Attachment;
use super::certificates::Certificates;
use super::conflicts::{self, Claim};
use super::context::Context;
use super::frontend_tls::FrontendValidation;
use super::grants::Referrer;
use super::hostnames::Hostname;
use super::kinds;
use super::names;
use super::selectors::NamespaceRule;
use crate::api::{
    AllowedRoutes, GATEWAY_GROUP, Listener, ListenerTls, NamespacedName, Protocol, TlsMode,
};
use crate::status::{Condition, ConditionStatus, ConditionType, ListenerStatus, Reason, Verdict};
use crate::world::{Kind, ObjectKey};

/// The object whose listeners they are: a Gateway.
#[derive(Clone, Debug)]
pub(super) struct Owner<'w> {
    pub(super) kind: Kind,
    pub(super) namespace: &'w str,
    pub(super) name: &'w str,
    pub(super) generation: i64,
}

impl<'w> Owner<'w> {
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind,
            name: NamespacedName::new(self.namespace, self.name),
        }
    }

    /// As ReferenceGrants name it.
    pub(super) fn referrer(&self) -> Referrer<'w> {
        Referrer {
            group: GATEWAY_GROUP,
            kind: self.kind.as_str(),
            namespace: self.namespace,
        }
    }
}

/// A judged listener.
#[derive(Debug)]
pub(super) struct ListenerState<'w> {
    pub(super) spec: &'w Listener,
    /// `Gateway/namespace/name/listeners/http`.
    pub(super) provenance: String,
    /// None if nothing is routed on the protocol.
    pub(super) protocol: Option<schema::Protocol>,
    /// None if the port is invalid.
    pub(super) port: Option<u16>,
    /// None if invalid; then no route's hostnames intersect.
    pub(super) hostname: Option<Hostname>,
    pub(super) kinds: Vec<Kind>,
    pub(super) namespaces: NamespaceRule<'w>,
    pub(super) accepted: Verdict,
    pub(super) conflict: Option<(Reason, String)>,
    pub(super) resolved: Verdict,
    /// Names of other HTTPS listeners whose hostnames overlap.
    pub(super) overlaps: Vec<&'w str>,
    /// For protocols that terminate TLS.
    pub(super) tls: Option<schema::TlsTermination>,
    /// Whether it needs TLS that it cannot have.
    pub(super) without_tls: bool,
    /// How many accepted routes attach.
    pub(super) attached: i32,
    /// The accepted routes.
    pub(super) attachments: Vec<Attachment>,
}

/// Judges the listeners of one object.
pub(super) fn judge<'w>(
    owner: &Owner<'w>,
    listeners: &'w [Listener],
    frontend: &FrontendValidation,
    cx: &mut Context<'w, '_>,
    certificates: &mut Certificates<'w, '_>,
) -> Vec<ListenerState<'w>> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for listener in listeners {
        *names.entry(&listener.name).or_default() += 1;
    }
    let mut states: Vec<ListenerState<'w>> = listeners
        .iter()
        .map(|listener| {
            let unique = names.get(listener.name.as_str()) == Some(&1);
            judge_one(owner, listener, unique)
        })
        .collect();
    find_conflicts(&mut states);
    find_overlaps(&mut states);
    for state in &mut states {
        resolve_tls(owner, state, frontend, cx, certificates);
    }
    states
}

fn judge_one<'w>(owner: &Owner<'w>, spec: &'w Listener, unique: bool) -> ListenerState<'w> {
    let Listener {
        name,
        hostname,
        port,
        protocol,
        tls,
        allowed_routes,
    } = spec;
    let mut accepted = Verdict::default();
    let mut resolved = Verdict::default();
    let mut unsupported = |message: String| accepted.refuse(Reason::UnsupportedValue, message);

    if !names::is_dns_subdomain(name) {
        unsupported(format!(
            "name {name:?} is not a DNS name of a-z, 0-9, '-' and '.'; rename the listener"
        ));
    }
    if !unique {
        unsupported(format!(
            "name {name:?} is used by several listeners; names must be unique"
        ));
    }
    let number = names::port(*port);
    if number.is_none() {
        unsupported(format!("port {port} is out of range; expected 1 to 65535"));
    }
    let host = match Hostname::parse(hostname.as_deref().unwrap_or_default()) {
        Ok(host) => Some(host),
        Err(why) => {
            unsupported(format!("hostname {why}"));
            None
        }
    };
    if matches!(protocol, Protocol::Tcp | Protocol::Udp)
        && host.as_ref().is_some_and(|host| !host.as_str().is_empty())
    {
        unsupported(format!("hostname must not be set with protocol {protocol}"));
    }
    if let Err(why) = check_tls(protocol, tls.as_ref()) {
        unsupported(why);
    }

    let AllowedRoutes {
        namespaces,
        kinds: asked,
    } = allowed_routes.as_ref().unwrap_or(&DEFAULT_ALLOWED_ROUTES);
    let namespaces =
        NamespaceRule::read(namespaces.as_ref(), owner.namespace).unwrap_or_else(|why| {
            unsupported(why);
            NamespaceRule::Nothing
        });
    if asked.len() > 8 {
        unsupported(format!(
            "allowedRoutes.kinds has {} entries; at most 8 are allowed",
            asked.len()
        ));
    }
    let served = kinds::of_protocol(protocol);
    if served.is_none() {
        accepted.refuse(
            Reason::UnsupportedProtocol,
            format!(
                "protocol {:?} is not supported; expected HTTP or HTTPS",
                protocol.as_str()
            ),
        );
    }
    let supported = served.map(|(_, kinds)| kinds).unwrap_or_default();
    let (kinds, unknown) = kinds::allowed(supported, asked);
    if !unknown.is_empty() {
        let supported: Vec<&str> = supported.iter().map(|kind| kind.as_str()).collect();
        resolved.refuse(
            Reason::InvalidRouteKinds,
            format!(
                "allowedRoutes.kinds lists {}, which protocol {protocol} does not route; it routes {}",
                unknown.join(", "),
                if supported.is_empty() { "none".to_owned() } else { supported.join(", ") }
            ),
        );
    }

    ListenerState {
        spec,
        provenance: format!("{}/listeners/{name}", owner.key()),
        protocol: served.map(|(protocol, _)| protocol),
        port: number,
        hostname: host,
        kinds,
        namespaces,
        accepted,
        conflict: None,
        resolved,
        overlaps: Vec::new(),
        tls: None,
        without_tls: false,
        attached: 0,
        attachments: Vec::new(),
    }
}

static DEFAULT_ALLOWED_ROUTES: AllowedRoutes = AllowedRoutes {
    namespaces: None,
    kinds: Vec::new(),
};

/// What a schema would say about `tls`.
fn check_tls(protocol: &Protocol, tls: Option<&ListenerTls>) -> Result<(), String> {
    match (protocol, tls) {
        (Protocol::Http | Protocol::Tcp | Protocol::Udp, Some(_)) => Err(format!(
            "tls must not be set with protocol {protocol}; use HTTPS or TLS"
        )),
        (Protocol::Https, None) => {
            Err("tls is required with protocol HTTPS; set tls.certificateRefs".to_owned())
        }
        (Protocol::Tls, None) => Err("tls is required with protocol TLS; set tls.mode".to_owned()),
        (Protocol::Https | Protocol::Tls, Some(tls)) => {
            let ListenerTls {
                mode,
                certificate_refs,
                options: _,
            } = tls;
            let terminate = match mode {
                Some(TlsMode::Terminate) => true,
                None if *protocol == Protocol::Https => true,
                Some(TlsMode::Passthrough) if *protocol == Protocol::Tls => false,
                None => return Err("tls.mode is required with protocol TLS".to_owned()),
                Some(other) => {
                    return Err(format!(
                        "tls.mode {:?} is not supported with protocol {protocol}",
                        other.as_str()
                    ));
                }
            };
            if terminate && certificate_refs.is_empty() {
                return Err("tls.certificateRefs is empty; name at least one Secret".to_owned());
            }
            if certificate_refs.len() > 64 {
                return Err(format!(
                    "tls.certificateRefs has {} entries; at most 64 are allowed",
                    certificate_refs.len()
                ));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Sets conflicts among the listeners that are valid so far.
fn find_conflicts(states: &mut [ListenerState<'_>]) {
    let mut indices = Vec::new();
    let mut claims = Vec::new();
    for (i, state) in states.iter().enumerate() {
        if let (true, Some(port), Some(protocol), Some(hostname)) = (
            state.accepted.good(),
            state.port,
            state.protocol,
            &state.hostname,
        ) {
            indices.push(i);
            claims.push(Claim {
                name: &state.spec.name,
                port,
                protocol,
                hostname,
            });
        }
    }
    let found = conflicts::find(&claims);
    for (i, conflict) in indices.into_iter().zip(found) {
        let (Some(state), Some((reason, message))) = (states.get_mut(i), conflict) else {
            continue;
        };
        state.accepted.refuse(reason, &message);
        state.conflict = Some((reason, message));
    }
}

/// Notes overlapping hostnames of HTTPS listeners on one port.
fn find_overlaps<'w>(states: &mut [ListenerState<'w>]) {
    let mut by_key: HashMap<(u16, &str), &'w str> = HashMap::new();
    let https = |state: &ListenerState<'_>| {
        state.accepted.good() && state.protocol == Some(schema::Protocol::Https)
    };
    for state in states.iter().filter(|state| https(state)) {
        if let (Some(port), Some(hostname)) = (state.port, &state.hostname) {
            by_key.insert((port, hostname.key()), &state.spec.name);
        }
    }
    let mut pairs: Vec<(&'w str, &'w str)> = Vec::new();
    for state in states.iter().filter(|state| https(state)) {
        let (Some(port), Some(hostname)) = (state.port, &state.hostname) else {
            continue;
        };
        let own = state.spec.name.as_str();
        for key in hostname.covering_keys().skip(1) {
            if let Some(wider) = by_key.get(&(port, key)) {
                pairs.push((own, wider));
                pairs.push((wider, own));
            }
        }
    }
    pairs.sort_unstable();
    for state in states {
        let own = state.spec.name.as_str();
        let from = pairs.partition_point(|(name, _)| *name < own);
        let to = pairs.partition_point(|(name, _)| *name <= own);
        if https(state) {
            let others = pairs.get(from..to).unwrap_or_default();
            state.overlaps = others.iter().map(|(_, other)| *other).collect();
        }
    }
}

/// Finds the certificates, and how clients are validated.
fn resolve_tls<'w>(
    owner: &Owner<'w>,
    state: &mut ListenerState<'w>,
    frontend: &FrontendValidation,
    cx: &mut Context<'w, '_>,
    certificates: &mut Certificates<'w, '_>,
) {
    let Some(tls) = &state.spec.tls else { return };
    let terminates = match state.spec.protocol {
        Protocol::Https => true,
        Protocol::Tls => tls.mode == Some(TlsMode::Terminate),
        _ => false,
    };
    if !terminates {
        return;
    }
    for (name, value) in &tls.options {
        cx.problems.add(
            owner.key(),
            format!(
                "listener {:?}: tls.options {name:?}: {value:?} is not supported and has no effect",
                state.spec.name
            ),
        );
    }
    let mut termination = schema::TlsTermination::default();
    let mut covered = false;
    for (i, reference) in tls.certificate_refs.iter().enumerate() {
        match certificates.get(owner.referrer(), reference, cx) {
            Ok(certificate) => {
                let hostname = state.hostname.as_ref();
                covered |= hostname.is_none_or(|hostname| certificate.covers(hostname));
                if !termination.keys.contains(&certificate.key.name) {
                    termination.keys.push(certificate.key.name.clone());
                }
            }
            Err(fault) => {
                let reason = if fault.not_permitted {
                    Reason::RefNotPermitted
                } else {
                    Reason::InvalidCertificateRef
                };
                state.resolved.refuse(
                    reason,
                    format!("tls.certificateRefs[{i}]: {}", fault.message),
                );
            }
        }
    }
    if !covered && !termination.keys.is_empty() {
        cx.problems.add(
            owner.key(),
            format!(
                "listener {:?}: no certificate of tls.certificateRefs is for hostname {:?}; clients will refuse it",
                state.spec.name, state.spec.hostname.as_deref().unwrap_or_default()
            ),
        );
    }
    state.without_tls = termination.keys.is_empty();
    if state.spec.protocol == Protocol::Https
        && let Some(port) = state.port
    {
        frontend.apply(
            port,
            &mut state.accepted,
            &mut state.resolved,
            &mut termination,
        );
    }
    state.tls = Some(termination);
}

impl ListenerState<'_> {
    /// Whether it is in the snapshot.
    pub(super) fn served(&self) -> bool {
        self.accepted.good() && !self.without_tls
    }

    /// Whether routes of the kind from the namespace may attach.
    pub(super) fn allows(&self, kind: Kind, namespace: &str, cx: &Context<'_, '_>) -> bool {
        self.kinds.contains(&kind) && self.namespaces.allows(namespace, cx.world)
    }

    pub(super) fn status(&self, generation: i64, gateway: &Verdict) -> ListenerStatus {
        let condition = |type_, status, reason, message: &str| {
            Condition::new(type_, status, reason, message, generation)
        };
        let programmed = match (
            self.accepted.fault(),
            self.resolved.fault(),
            gateway.fault(),
        ) {
            (Some((_, message)), ..) => {
                let reason = self
                    .conflict
                    .as_ref()
                    .map_or(Reason::Invalid, |(reason, _)| *reason);
                condition(
                    ConditionType::Programmed,
                    ConditionStatus::False,
                    reason,
                    message,
                )
            }
            (None, Some((_, message)), _) if self.without_tls => condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                Reason::Invalid,
                &format!("the listener has no usable certificate: {message}"),
            ),
            (.., Some((_, message))) => condition(
                ConditionType::Programmed,
                ConditionStatus::False,
                Reason::Invalid,
                &format!("the Gateway is not accepted: {message}"),
            ),
            _ => condition(
                ConditionType::Programmed,
                ConditionStatus::Unknown,
                Reason::Pending,
                super::gateways::WAITING,
            ),
        };
        let conflicted = match &self.conflict {
            Some((reason, message)) => condition(
                ConditionType::Conflicted,
                ConditionStatus::True,
                *reason,
                message,
            ),
            None => condition(
                ConditionType::Conflicted,
                ConditionStatus::False,
                Reason::NoConflicts,
                "no other listener conflicts",
            ),
        };
        let mut conditions = vec![
            self.accepted.condition(
                ConditionType::Accepted,
                Reason::Accepted,
                "the listener is valid",
                generation,
            ),
            programmed,
            self.resolved.condition(
                ConditionType::ResolvedRefs,
                Reason::ResolvedRefs,
                "all references are resolved",
                generation,
            ),
            conflicted,
        ];
        if !self.overlaps.is_empty() {
            conditions.push(condition(
                ConditionType::OverlappingTlsConfig,
                ConditionStatus::True,
                Reason::OverlappingHostnames,
                &format!(
                    "the hostname overlaps with that of listeners {} on the same port; requests on a reused \
                     connection that belong there are answered with 421",
                    self.overlaps.join(", ")
                ),
            ));
        }
        ListenerStatus {
            name: self.spec.name.clone(),
            supported_kinds: self
                .kinds
                .iter()
                .map(|kind| kinds::group_kind(*kind))
                .collect(),
            attached_routes: self.attached,
            conditions,
        }
    }
}
