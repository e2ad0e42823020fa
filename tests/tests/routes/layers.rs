//! Routes of different kinds for the same host. For each row of `tests/data/layers.yaml`, `explain`
//! and Envoy must produce the expected outcome.

mod over_http3;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sesame_explain::{ExplainRequest, ExplainedOutcome, Explainer};
use sesame_kinds::decode::{self, DecodeLimits};
use sesame_kinds::world::World;
use sesame_resolver::{Options, resolve};
use sesame_tests::agent::{AgentUnderTest, Setup};
use sesame_tests::backends::start_served;
use sesame_tests::certs::{Authority, Leaf};
use sesame_tests::client::{Reply, Request};
use sesame_tests::handshakes::Handshake;
use sesame_tests::manifests::{
    class_with_parameters, gateway, http_listener, http_proxy, http_route, https_listener, ingress,
    ingress_class, yaml,
};

const ROWS: &str = include_str!("../../data/layers.yaml");
const SERVICES: [&str; 6] = ["i", "i2", "p", "p2", "r", "r2"];
const SECRETS: [&str; 3] = ["g", "s1", "s2"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    case: String,
    #[serde(default)]
    alone: bool,
    settings: Option<Value>,
    #[serde(default)]
    listeners: Vec<OwnListener>,
    objects: Vec<LayerObject>,
    asks: Vec<Ask>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnListener {
    host: String,
    secret: String,
}

#[derive(Deserialize)]
enum LayerObject {
    I(Claim),
    P(Claim),
    R(Claim),
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Claim {
    name: Option<String>,
    namespace: Option<String>,
    class: Option<String>,
    /// Defaults to the row's host. `none` means a request without a host.
    host: Option<String>,
    path: String,
    to: String,
    headers: BTreeMap<String, String>,
    method: Option<String>,
    tls: Option<String>,
    annotations: Map<String, Value>,
    rule: Map<String, Value>,
    host_policy: Map<String, Value>,
    also: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    #[serde(default = "http")]
    port: u16,
    host: String,
    path: String,
    #[serde(default = "get")]
    method: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    answer: String,
    shows: Option<String>,
}

fn http() -> u16 {
    80
}

fn get() -> String {
    "GET".to_owned()
}

/// Replaces `H` with the row's own host.
fn rows() -> Vec<Row> {
    let rows: Vec<Value> = serde_saphyr::from_str(ROWS).expect("rows");
    let numbered = rows.into_iter().enumerate();
    numbered
        .map(|(number, mut row)| {
            for ask in row["asks"].as_array_mut().expect("requests") {
                let fields = ask.as_object_mut().expect("a request");
                fields.entry("host").or_insert_with(|| json!("H"));
            }
            name_host(&mut row, &format!("row-{number}.test"));
            serde_json::from_value(row.clone()).unwrap_or_else(|why| panic!("{why}: {row}"))
        })
        .collect()
}

fn name_host(value: &mut Value, host: &str) {
    match value {
        Value::String(text) => {
            if let Some(rest) = text.strip_suffix('H')
                && (rest.is_empty() || rest.ends_with(['.', '-']))
            {
                *text = format!("{rest}{host}");
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|it| name_host(it, host)),
        Value::Object(fields) => fields.values_mut().for_each(|it| name_host(it, host)),
        _ => {}
    }
}

impl LayerObject {
    fn object(&self, row: usize, place: usize) -> Value {
        let own = format!("row-{row}.test");
        let (Self::I(claim) | Self::P(claim) | Self::R(claim)) = self;
        let host = claim.host.as_ref().unwrap_or(&own);
        let host = Some(host.as_str()).filter(|host| *host != "none");
        let name = format!("row-{row}-{place}");
        let name = claim.name.as_deref().unwrap_or(&name);
        let mut object = match self {
            Self::I(_) => claim.ingress(name, host.unwrap_or_default()),
            Self::P(_) => claim.proxy(name, host),
            Self::R(_) => claim.route(name, host.unwrap_or_default()),
        };
        let metadata = &mut object["metadata"];
        // The first object is the oldest.
        metadata["creationTimestamp"] = json!(format!("2020-01-01T00:00:{place:02}Z"));
        if let Some(namespace) = &claim.namespace {
            metadata["namespace"] = json!(namespace);
        }
        let spec = object["spec"].as_object_mut().expect("a specification");
        spec.extend(claim.also.clone());
        if let Some(class) = &claim.class {
            spec.insert("ingressClassName".to_owned(), json!(class));
        }
        object
    }
}

impl Claim {
    fn path(&self) -> (&str, &str) {
        self.path.split_at_checked(1).unwrap_or_default()
    }

    fn ingress(&self, name: &str, host: &str) -> Value {
        let backend = json!({"service": {"name": self.to, "port": {"number": 80}}});
        let (kind, path) = self.path();
        let kind = match kind {
            "" => return ingress(name, &json!({}), &json!({"defaultBackend": backend})),
            "e" => "Exact",
            _ => "Prefix",
        };
        let paths = json!([{"path": path, "pathType": kind, "backend": backend}]);
        let mut spec = json!({"rules": [{"host": host, "http": {"paths": paths}}]});
        if let Some(secret) = &self.tls {
            spec["tls"] = json!([{"hosts": [host], "secretName": secret}]);
        }
        ingress(name, &json!(self.annotations), &spec)
    }

    fn proxy(&self, name: &str, host: Option<&str>) -> Value {
        let (kind, path) = self.path();
        let kind = match kind {
            "e" => "exact",
            "r" => "regex",
            _ => "prefix",
        };
        let mut conditions = vec![json!({kind: path})];
        let headers = self.headers.iter();
        conditions
            .extend(headers.map(|(name, value)| json!({"header": {"name": name, "exact": value}})));
        let mut rule =
            json!({"conditions": conditions, "services": [{"name": self.to, "port": 80}]});
        let fields = rule.as_object_mut().expect("a route");
        fields.extend(self.rule.clone());
        let mut spec = json!({});
        if !self.path.is_empty() {
            spec["routes"] = json!([rule]);
        }
        if let Some(host) = host {
            let mut virtualhost = self.host_policy.clone();
            virtualhost.insert("fqdn".to_owned(), json!(host));
            if let Some(secret) = &self.tls {
                virtualhost.insert("tls".to_owned(), json!({"secretName": secret}));
            }
            spec["virtualhost"] = json!(virtualhost);
        }
        http_proxy(name, &spec)
    }

    fn route(&self, name: &str, host: &str) -> Value {
        let (kind, path) = self.path();
        let kind = match kind {
            "e" => "Exact",
            "r" => "RegularExpression",
            _ => "PathPrefix",
        };
        let headers = self.headers.iter();
        let headers: Vec<Value> = headers
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        let mut matching = json!({"headers": headers});
        if !path.is_empty() {
            matching["path"] = json!({"type": kind, "value": path});
        }
        if let Some(method) = &self.method {
            matching["method"] = json!(method);
        }
        let rule = json!({"matches": [matching], "backendRefs": [{"name": self.to, "port": 80}]});
        let hosts: &[&str] = if host.is_empty() { &[] } else { &[host] };
        http_route(name, hosts, &[rule])
    }
}

struct RowGroup {
    rows: Vec<(usize, Row)>,
    objects: Vec<Value>,
}

/// Puts all rows into one group, except rows that need a separate group.
fn row_groups(secrets: &[Value]) -> Vec<RowGroup> {
    groups_of(rows(), secrets, &json!({}))
}

fn groups_of(rows: Vec<Row>, secrets: &[Value], edge: &Value) -> Vec<RowGroup> {
    let all = rows.into_iter().enumerate();
    let (alone, shared): (Vec<_>, Vec<_>) =
        all.partition(|(_, row)| row.alone || row.settings.is_some());
    let alone = alone.into_iter().map(|row| vec![row]);
    let groups = alone.chain([shared]);
    groups
        .map(|rows| {
            let mut listeners = vec![http_listener("http", 80, "")];
            let own = rows.iter().flat_map(|(_, row)| &row.listeners);
            listeners.extend(own.enumerate().map(|(number, listener)| {
                let name = format!("https-{number}");
                https_listener(&name, 443, &listener.host, &listener.secret)
            }));
            let settings = rows.iter().find_map(|(_, row)| row.settings.as_ref());
            let settings = json!({"ingress": settings, "edge": edge});
            let mut objects = class_with_parameters("edge", "settings", &settings).to_vec();
            objects.extend([gateway("edge", &listeners), ingress_class()]);
            objects.extend(secrets.iter().cloned());
            for (number, row) in &rows {
                let row_objects = row.objects.iter().enumerate();
                objects.extend(row_objects.map(|(place, object)| object.object(*number, place)));
            }
            RowGroup { rows, objects }
        })
        .collect()
}

/// Returns the Service, the status, or `refused`.
fn explained(explainer: &mut Explainer<'_>, ask: &Ask) -> String {
    let scheme = if ask.port == 443 { "https" } else { "http" };
    let url = format!("{scheme}://{}:{}{}", ask.host, ask.port, ask.path);
    let headers: Vec<String> = ask
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let request = ExplainRequest::parse(&ask.method, &url, &headers, None).expect("a request");
    let request = ExplainRequest {
        client: Some(Ipv4Addr::LOCALHOST.into()),
        ..request
    };
    match explainer.explain(&request).outcome {
        ExplainedOutcome::Refused { .. } => "refused".to_owned(),
        ExplainedOutcome::Answered { status, .. } | ExplainedOutcome::Redirected { status, .. } => {
            status.to_string()
        }
        ExplainedOutcome::Forwarded { backends, .. } | ExplainedOutcome::Connected { backends } => {
            let first = backends.first();
            let name = first.and_then(|it| it.backend.as_deref()).unwrap_or("500");
            name.split('/').nth(2).unwrap_or(name).to_owned()
        }
    }
}

async fn answered(agent: &AgentUnderTest, ask: &Ask, authority: &Authority) -> String {
    let mut request =
        Request::get(agent.address(ask.port), &ask.host, &ask.path).method(&ask.method);
    for (name, value) in &ask.headers {
        request = request.header(name, value);
    }
    if ask.port == 443 {
        request = request.tls(&ask.host, &authority.trust());
    }
    outcome(request.send().await)
}

fn outcome(reply: Result<Reply>) -> String {
    match reply {
        Ok(reply) if reply.status == 200 => reply.backend().unwrap_or_default(),
        Ok(reply) => reply.status.to_string(),
        Err(_) => "refused".to_owned(),
    }
}

async fn shown(
    agent: &AgentUnderTest,
    ask: &Ask,
    authority: &Authority,
    leaves: &[Leaf],
) -> Option<String> {
    let handshake = Handshake::with(agent.address(ask.port), &ask.host, &authority.trust());
    let certificate = handshake.shake().await.ok()?.certificate;
    let mut known = SECRETS.iter().zip(leaves);
    known
        .find(|(_, leaf)| leaf.der == certificate)
        .map(|(name, _)| (*name).to_owned())
}

/// Returns a certificate for each of [`SECRETS`], for the hosts of all rows.
fn leaves(authority: &Authority) -> [Leaf; 3] {
    let names: Vec<String> = (0..rows().len())
        .flat_map(|row| [format!("row-{row}.test"), format!("*.row-{row}.test")])
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    SECRETS.map(|_| authority.issue(&names))
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_answer_as_in_table() {
    let authority = Authority::new("layers");
    let leaves = leaves(&authority);
    let secrets: Vec<Value> = SECRETS
        .iter()
        .zip(&leaves)
        .map(|(name, leaf)| leaf.secret(name))
        .collect();
    let mut services = Vec::new();
    let _backends = start_served(&SERVICES, &mut services).await;
    let mut wrong = Vec::new();
    for RowGroup { rows, mut objects } in row_groups(&secrets) {
        objects.extend(services.iter().cloned());
        let text = yaml(&objects);
        let mut world = World::default();
        for document in decode::split(&text) {
            for decoded in decode::decode(document.text, &DecodeLimits::default()) {
                world.insert(decoded.expect("objects are read").object);
            }
        }
        let options = Options {
            allow_local_endpoints: true,
            ..Options::default()
        };
        let resolution = resolve(&world, &options);
        let snapshot = &resolution.gateways.first().expect("a Gateway").snapshot;
        let mut explainer = Explainer::new(snapshot);
        let agent = Setup::with_ports(&[80, 443]).start(&[("all.yaml", &text)]);
        agent.wait_stored().await;
        for (_, row) in &rows {
            for ask in &row.asks {
                let explanation = explained(&mut explainer, ask);
                let answered = answered(&agent, ask, &authority).await;
                let mut got = vec![explanation, answered];
                let mut expected = vec![ask.answer.clone(); 2];
                if let Some(secret) = &ask.shows {
                    got.extend(shown(&agent, ask, &authority, &leaves).await);
                    expected.push(secret.clone());
                }
                if got != expected {
                    let case = &row.case;
                    wrong.push(format!(
                        "{case}: {} {}: got {got:?}, expected {expected:?}",
                        ask.host, ask.path
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
