//! What each listener of an object is: valid or not, distinct or not, and what may attach to it.
//!
//! A listener that is refused harms no other. Its routes are still judged and counted, because attachment
//! does not depend on the listener's own state (`ListenerStatus.attachedRoutes`).

pub(crate) mod conflicts;
pub(crate) mod namespaces;
pub(crate) mod protocols;
pub(crate) mod sets;
pub(crate) mod termination;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use sesame_proto::schema;

use self::conflicts::Claim;
use self::namespaces::NamespaceRule;
use crate::api::{AllowedRoutes, GATEWAY_GROUP, Listener, NamespacedName, Protocol, UnknownFields};
use crate::resolve::context::Context;
use crate::resolve::grants::Referrer;
use crate::resolve::parents::attach::Attachment;
use crate::resolve::syntax::hostnames::Hostname;
use crate::resolve::syntax::names;
use crate::status::{Reason, Verdict};
use crate::world::{Kind, ObjectKey};

/// As many listeners a Gateway may have together with its ListenerSets: each HTTPS listener says of each other of
/// its port that it is not there.
const MAX_TOGETHER: usize = 512;

/// The object whose listeners they are: a Gateway or a ListenerSet.
#[derive(Clone, Debug)]
pub(crate) struct Owner<'w> {
    pub(crate) kind: Kind,
    pub(crate) namespace: &'w str,
    pub(crate) name: &'w str,
    pub(crate) generation: i64,
    pub(crate) unknown: &'w UnknownFields,
}

impl<'w> Owner<'w> {
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind,
            name: NamespacedName::new(self.namespace, self.name),
        }
    }

    /// As ReferenceGrants name it.
    pub(crate) fn referrer(&self) -> Referrer<'w> {
        Referrer {
            group: GATEWAY_GROUP,
            kind: self.kind.as_str(),
            namespace: self.namespace,
        }
    }
}

/// A judged listener.
#[derive(Debug)]
pub(crate) struct ListenerState<'w> {
    pub(crate) spec: &'w Listener,
    /// Of its object: 0 of the Gateway, then of its ListenerSets in their order.
    pub(crate) rank: usize,
    /// `Gateway/namespace/name/listeners/http`.
    pub(crate) provenance: String,
    /// None if nothing is routed on the protocol.
    pub(crate) protocol: Option<schema::Protocol>,
    /// None if the port is invalid.
    pub(crate) port: Option<u16>,
    /// None if invalid; then no route's hostnames intersect.
    pub(crate) hostname: Option<Hostname>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) namespaces: NamespaceRule<'w>,
    pub(crate) accepted: Verdict,
    /// What is said where nothing is wrong.
    pub(crate) valid: Cow<'static, str>,
    pub(crate) conflict: Option<(Reason, String)>,
    pub(crate) resolved: Verdict,
    /// Other HTTPS listeners whose hostnames overlap, as people of its object know them.
    pub(crate) overlaps: Vec<String>,
    /// For protocols that terminate TLS.
    pub(crate) tls: Option<schema::TlsTermination>,
    /// Whether it needs TLS that it cannot have.
    pub(crate) without_tls: bool,
    /// How many accepted routes attach.
    pub(crate) attached: i32,
    /// The accepted routes.
    pub(crate) attachments: Vec<Attachment>,
}

/// Judges the listeners of one object, each for itself.
pub(crate) fn judge<'w>(
    owner: &Owner<'w>,
    rank: usize,
    listeners: &'w [Listener],
) -> Vec<ListenerState<'w>> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for listener in listeners {
        *names.entry(&listener.name).or_default() += 1;
    }
    listeners
        .iter()
        .enumerate()
        .map(|(index, listener)| {
            let unique = names.get(listener.name.as_str()) == Some(&1);
            judge_one(owner, rank, index, listener, unique)
        })
        .collect()
}

/// Judges what the listeners of a Gateway and of its ListenerSets are to each other; in the order of precedence.
/// The first `own` are the Gateway's; `sets` are the ranges of the others, each with the namespace of its set.
pub(crate) fn compare(states: &mut [ListenerState<'_>], own: usize, sets: &[(&str, Range<usize>)]) {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for (namespace, range) in sets {
        *asked.entry(namespace).or_default() += range.len();
    }
    let counts: Vec<usize> = asked.values().copied().collect();
    let share = fair_share(MAX_TOGETHER.saturating_sub(own), &counts);
    let mut had: BTreeMap<&str, usize> = BTreeMap::new();
    for (namespace, range) in sets {
        let had = had.entry(namespace).or_default();
        for state in states.get_mut(range.clone()).unwrap_or_default() {
            *had += 1;
            if *had > share {
                state.accepted.refuse(
                    Reason::TooManyListeners,
                    format!(
                        "ListenerSets of namespace {namespace:?} have {share} listeners before this one on the Gateway, \
                         which is their share of the {MAX_TOGETHER} that it may have together with its ListenerSets"
                    ),
                );
            }
        }
    }
    find_conflicts(states);
    find_overlaps(states);
}

/// How many each may have of so many in all: whoever asks for less gets that, and what is left is shared out evenly among
/// the others. So who asks for much takes nothing from who asks for little, whoever came first.
fn fair_share(mut room: usize, asked: &[usize]) -> usize {
    let mut asked = asked.to_vec();
    asked.sort_unstable();
    let mut others = asked.len();
    for count in &asked {
        let share = room / others.max(1);
        if *count > share {
            return share;
        }
        room = room.saturating_sub(*count);
        others = others.saturating_sub(1);
    }
    usize::MAX
}

fn judge_one<'w>(
    owner: &Owner<'w>,
    rank: usize,
    index: usize,
    spec: &'w Listener,
    unique: bool,
) -> ListenerState<'w> {
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

    if let Some(why) = owner.unknown.refusal_of("listeners", index) {
        unsupported(why);
    }
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
    if let Err(why) = termination::check(protocol, tls.as_ref()) {
        unsupported(why);
    }

    let AllowedRoutes {
        namespaces,
        kinds: asked,
    } = allowed_routes.as_ref().unwrap_or(&DEFAULT_ALLOWED_ROUTES);
    let namespaces =
        NamespaceRule::of_routes(namespaces.as_ref(), owner.namespace).unwrap_or_else(|why| {
            unsupported(why);
            NamespaceRule::Nothing
        });
    if asked.len() > 8 {
        unsupported(format!(
            "allowedRoutes.kinds has {} entries; at most 8 are allowed",
            asked.len()
        ));
    }
    let served = protocols::of_protocol(protocol);
    if served.is_none() {
        accepted.refuse(
            Reason::UnsupportedProtocol,
            format!(
                "protocol {:?} is not supported; expected one of {}",
                protocol.as_str(),
                protocols::protocols()
            ),
        );
    }
    let supported = served.map(|(_, kinds)| kinds).unwrap_or_default();
    let (kinds, unknown) = protocols::allowed(supported, asked);
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
        rank,
        provenance: format!("{}/listeners/{name}", owner.key()),
        protocol: served.map(|(protocol, _)| protocol),
        port: number,
        hostname: host,
        kinds,
        namespaces,
        accepted,
        valid: owner
            .unknown
            .beside("the listener is valid", "listeners", Some(index)),
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
                rank: state.rank,
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
fn find_overlaps(states: &mut [ListenerState<'_>]) {
    let https = |state: &ListenerState<'_>| {
        state.accepted.good() && state.protocol == Some(schema::Protocol::Https)
    };
    let mut by_key: HashMap<(u16, &str), usize> = HashMap::new();
    for (i, state) in states.iter().enumerate().filter(|(_, state)| https(state)) {
        if let (Some(port), Some(hostname)) = (state.port, &state.hostname) {
            by_key.insert((port, hostname.key()), i);
        }
    }
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (i, state) in states.iter().enumerate().filter(|(_, state)| https(state)) {
        let (Some(port), Some(hostname)) = (state.port, &state.hostname) else {
            continue;
        };
        for key in hostname.covering_keys().skip(1) {
            if let Some(wider) = by_key.get(&(port, key)) {
                pairs.extend([(i, *wider), (*wider, i)]);
            }
        }
    }
    let mut named: Vec<(usize, usize, String)> = pairs
        .into_iter()
        .filter_map(|(own, other)| {
            let (of, wider) = (states.get(own)?, states.get(other)?);
            // Between objects, only that there is one.
            let name = match (of.rank == wider.rank, wider.rank) {
                (true, _) => wider.spec.name.clone(),
                (false, 0) => "of the Gateway".to_owned(),
                (false, _) => "of a ListenerSet".to_owned(),
            };
            Some((own, wider.rank, name))
        })
        .collect();
    named.sort_unstable();
    for (own, _, name) in named {
        if let Some(state) = states.get_mut(own)
            && !state.overlaps.contains(&name)
        {
            state.overlaps.push(name);
        }
    }
}

impl ListenerState<'_> {
    /// Whether it is in the snapshot.
    pub(crate) fn served(&self) -> bool {
        self.accepted.good() && !self.without_tls
    }

    /// Whether routes of the kind from the namespace may attach.
    pub(crate) fn allows(&self, kind: Kind, namespace: &str, cx: &Context<'_, '_>) -> bool {
        self.kinds.contains(&kind) && self.namespaces.allows(namespace, cx.world)
    }
}
