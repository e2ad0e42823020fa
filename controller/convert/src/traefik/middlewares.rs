//! Middlewares of a route become filters and policies of its rules.

use serde_json::{Map, Value};

use super::super::draft::{Draft, ObjectId};
use super::super::fields::{RemainingFields, TakenField};
use super::super::routing::{self, RuleDraft};
use super::super::values::put_list;
use super::{ANNOTATIONS, FEWER, Routers, TOO_MANY, auth, headers, paths, traffic};

const MAX_DEPTH: usize = 4;

/// The rule that middlewares change.
pub(super) struct RuleParts<'p> {
    pub(super) matched: &'p Value,
    /// Type and value of the path that the next middleware sees. `None` after an expression.
    pub(super) path: Option<(String, String)>,
    pub(super) is_https: bool,
    /// Name and namespace of new objects.
    pub(super) owner: &'p ObjectId,
    pub(super) metadata: &'p Map<String, Value>,
    pub(super) access: Map<String, Value>,
    pub(super) traffic: Map<String, Value>,
    pub(super) filters: Vec<Value>,
    /// Headers of requests and responses: set, and removed.
    pub(super) headers: [(Vec<Value>, Vec<String>); 2],
    /// The filter that answers requests.
    pub(super) redirect: Option<Value>,
    /// Namespace of the middleware.
    pub(super) namespace: String,
}

impl<'p> RuleParts<'p> {
    pub(super) fn new(
        owner: &'p ObjectId,
        metadata: &'p Map<String, Value>,
        matched: &'p Value,
        is_https: bool,
    ) -> Self {
        let text = |name: &str| matched["path"][name].as_str().unwrap_or_default();
        Self {
            matched,
            path: Some((text("type").to_owned(), text("value").to_owned())),
            is_https,
            owner,
            metadata,
            access: Map::new(),
            traffic: Map::new(),
            filters: Vec::new(),
            headers: Default::default(),
            redirect: None,
            namespace: owner.namespace.clone(),
        }
    }

    /// Sets a part of a policy. Refuses a second one, because a rule has only one.
    pub(super) fn set(&mut self, fields: &RemainingFields, part: &str, value: Map<String, Value>) {
        if !value.is_empty() && !self.insert(part, value) {
            let reason = "another middleware of the route has the same effect";
            fields.refuse("", reason, "combine the middlewares");
        }
    }

    /// Returns false if the part is set.
    pub(super) fn insert(&mut self, part: &str, value: Map<String, Value>) -> bool {
        let is_access = !["requestBody", "compression", "retry"].contains(&part);
        let parts = if is_access {
            &mut self.access
        } else {
            &mut self.traffic
        };
        let is_free = !parts.contains_key(part);
        if is_free {
            parts.insert(part.to_owned(), value.into());
        }
        is_free
    }

    /// Returns the rule. `backends` are ignored if a middleware redirects all requests.
    pub(super) fn into_rule(self, backends: Vec<Value>, more: Vec<Value>) -> RuleDraft {
        let Self {
            matched,
            access,
            traffic,
            mut filters,
            headers,
            redirect,
            ..
        } = self;
        let mut rule = RuleDraft {
            matches: vec![matched.clone()],
            access,
            traffic,
            ..RuleDraft::default()
        };
        let is_redirect = redirect.is_some();
        if let Some(redirect) = redirect {
            filters.retain(|it| it["type"] != "URLRewrite" && it["type"] != "ExtensionRef");
            filters.push(redirect);
            rule.traffic
                .retain(|it, _| it == "rateLimits" || it == "requestBody");
        } else {
            put_list(&mut rule.fields, "backendRefs", backends);
            filters.extend(more);
        }
        let kinds = ["RequestHeaderModifier", "ResponseHeaderModifier"];
        for ((set, remove), kind) in headers.into_iter().zip(kinds) {
            let is_useless = is_redirect && kind.starts_with("Request");
            let modifier = routing::header_modifier(kind, set, Vec::new(), remove);
            filters.extend(modifier.filter(|_| !is_useless));
        }
        put_list(
            &mut rule.fields,
            "filters",
            routing::merge_rewrites(filters),
        );
        rule
    }
}

type Convert = fn(&mut Draft, &mut RuleParts, RemainingFields);

/// Kinds of middlewares that become something.
const KINDS: &[(&str, Convert)] = &[
    ("addPrefix", paths::add_prefix),
    ("basicAuth", auth::basic),
    ("buffering", traffic::buffering),
    ("compress", traffic::compress),
    ("forwardAuth", auth::forward),
    ("grpcWeb", traffic::grpc_web),
    ("headers", headers::convert),
    ("ipAllowList", auth::addresses),
    ("ipWhiteList", auth::addresses),
    ("rateLimit", traffic::rate_limit),
    ("redirectRegex", paths::redirect_regex),
    ("redirectScheme", paths::redirect_scheme),
    ("replacePath", paths::replace),
    ("replacePathRegex", paths::replace_regex),
    ("retry", traffic::retry),
    ("stripPrefix", paths::strip),
    ("stripPrefixRegex", paths::strip_regex),
];

/// Kinds without a counterpart: name, whether they protect, reason and remedy.
const REFUSED: &[(&str, bool, &str, &str)] = &[
    (
        "circuitBreaker",
        false,
        "circuit breakers count requests, not failures",
        "use healthCheck.passive of a BackendPolicy",
    ),
    (
        "digestAuth",
        true,
        "Sesame checks passwords with basicAuth only",
        "use basicAuth over HTTPS",
    ),
    (
        "encodedCharacters",
        true,
        "escaped slashes are handled for a whole Gateway",
        "set spec.edge.escapedSlashes",
    ),
    (
        "errors",
        false,
        "responses do not come from another backend",
        "use errorPages of a TrafficPolicy",
    ),
    (
        "inFlightReq",
        true,
        "Sesame does not limit concurrent requests by client",
        "use rateLimits, or circuitBreaker of a BackendPolicy",
    ),
    (
        "passTLSClientCert",
        true,
        "client certificates are forwarded for a whole Gateway",
        "set spec.edge.forwardClientCertificate",
    ),
    (
        "plugin",
        true,
        "Sesame runs no plugins",
        "express it with filters and policies",
    ),
];

/// Applies the middlewares that a route lists.
pub(super) fn apply(
    draft: &mut Draft,
    routers: &mut Routers,
    parts: &mut RuleParts,
    list: &[ObjectId],
) {
    routers.start_rule();
    for id in list {
        if routers.follow() {
            one(draft, routers, parts, &mut vec![id.clone()]);
        } else {
            let log = routers.log(parts.owner);
            let fields = RemainingFields::of_object(&Value::Null, &log);
            fields.refuse("spec.routes.middlewares", TOO_MANY, FEWER);
        }
    }
}

/// Applies the last middleware of `path`, including its chain. The others are the chains above.
fn one(draft: &mut Draft, routers: &mut Routers, parts: &mut RuleParts, path: &mut Vec<ObjectId>) {
    let owner = parts.owner.clone();
    let Some(id) = path.last().cloned() else {
        return;
    };
    let Some(object) = routers.using(&owner, &id) else {
        return;
    };
    let log = routers.log(&id);
    let mut root = RemainingFields::of_object(object, &log);
    root.take_head(ANNOTATIONS);
    let mut spec = root.section("spec");
    parts.namespace.clone_from(&id.namespace);
    for name in spec.names() {
        let Some(field) = spec.take(&name) else {
            continue;
        };
        if let Some((_, protects, reason, remedy)) = REFUSED.iter().find(|it| it.0 == name) {
            field.protecting(*protects).refuse(reason, remedy);
        } else if let Some((_, convert)) = KINDS.iter().find(|it| it.0 == name) {
            convert(draft, parts, field.fields());
        } else if name == "chain" {
            chain(draft, routers, parts, (path, field));
        } else if name == "contentType" {
            field.unneeded("types of responses are never guessed");
        }
    }
}

fn chain(
    draft: &mut Draft,
    routers: &mut Routers,
    parts: &mut RuleParts,
    (path, field): (&mut Vec<ObjectId>, TakenField),
) {
    let namespace = parts.namespace.clone();
    let mut fields = field.fields();
    for field in fields.list("middlewares") {
        if !routers.follow() {
            field.refuse(TOO_MANY, FEWER);
            continue;
        }
        match reference(routers, field, &namespace) {
            Some(below) if path.contains(&below) => fields.refuse(
                "middlewares",
                "the chain refers to itself",
                "remove the reference",
            ),
            Some(below) if path.len() <= MAX_DEPTH => {
                path.push(below);
                one(draft, routers, parts, path);
                path.pop();
            }
            Some(_) => fields.refuse(
                "middlewares",
                "the chain is too long",
                "list the middlewares",
            ),
            None => {}
        }
    }
}

/// Reads a reference to a middleware. Returns `None` if it is not in the input, which is refused.
pub(super) fn reference(routers: &Routers, field: TakenField, namespace: &str) -> Option<ObjectId> {
    let mut fields = field.fields();
    let name = fields.text("name", "HTTPRoute rules.filters")?;
    let own = fields.text("namespace", "HTTPRoute rules.filters");
    let own = own.filter(|it| !it.is_empty());
    let namespace = own.unwrap_or_else(|| namespace.to_owned());
    let id = ObjectId::new("Middleware", &namespace, &name);
    if routers.inputs.contains_key(&id) {
        return Some(id);
    }
    fields.refuse(
        "name",
        "the Middleware is not in the input",
        "add it to the input",
    );
    None
}
