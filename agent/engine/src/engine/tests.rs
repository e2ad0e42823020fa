//! Tests that the engine publishes the same result as a full resolution and rendering.

mod parameters;

use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use sesame_resolver::{Options, resolve};

use super::*;
use crate::directories::Directories;
use sesame_sources::acme::{AcmeCertificates, AcmeHostSettings};
use sesame_sources::last_good::LastGood;

const GATEWAYS: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: sesame},
 spec: {controllerName: projectsesame.io/gateway-controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge},
 spec: {gatewayClassName: sesame, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: wide},
 spec: {gatewayClassName: sesame, listeners: [
  {name: all, port: 80, protocol: HTTP, hostname: '*.example.com'},
  {name: one, port: 80, protocol: HTTP, hostname: a.example.com},
  {name: other, port: 81, protocol: HTTP}]}}
";

#[derive(Clone, Debug)]
struct App {
    /// Number of comment lines at the top, which shift all line numbers.
    comments: usize,
    port: u16,
    endpoint: &'static str,
    place: String,
    rules: String,
}

impl App {
    fn new(place: String, rules: String) -> Self {
        Self {
            comments: 0,
            port: 80,
            endpoint: "10.0.0.1",
            place,
            rules,
        }
    }

    fn text(&self, name: usize) -> String {
        let Self {
            comments,
            port,
            endpoint,
            place,
            rules,
        } = self;
        let kind = if name == 2 { "GRPCRoute" } else { "HTTPRoute" };
        format!(
            "{}{{apiVersion: v1, kind: Service, metadata: {{name: s{name}}}, spec: {{ports: [{{port: {port}}}]}}}}\n---\n\
             {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s{name}, labels: \
             {{kubernetes.io/service-name: s{name}}}}}, addressType: IPv4, endpoints: [{{addresses: [{endpoint}]}}], \
             ports: [{{port: 8080}}]}}\n---\n\
             {{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: r{name}}}, spec: {{{place}, rules: [{rules}]}}}}\n",
            "# more\n".repeat(*comments)
        )
    }
}

/// Some variants contain an invalid field.
fn any_place() -> impl Strategy<Value = String> {
    let parent = prop::sample::select(vec![
        "name: edge",
        "name: wide",
        "name: wide, sectionName: one",
        "name: none",
    ]);
    let hostnames = prop::sample::select(vec![
        "a.example.com",
        "b.example.com",
        "'*.example.com'",
        "a.example.com, b.example.com",
        "",
    ]);
    let noted = prop_oneof![
        9 => Just(""),
        1 => Just("useDefaultGateways: All, "),
        1 => Just("unknown: 1, "),
        1 => Just("rules: 1, "),
    ];
    (parent, hostnames, noted).prop_map(|(parent, hostnames, noted)| {
        format!("{noted}parentRefs: [{{{parent}}}], hostnames: [{hostnames}]")
    })
}

/// An invalid rule is dropped if another rule is valid.
fn any_rules() -> impl Strategy<Value = String> {
    prop::collection::vec(any_rule(), 1..3).prop_map(|rules| rules.join(", "))
}

fn any_rule() -> impl Strategy<Value = String> {
    let value = prop::sample::select(vec!["a", "b", "c", "d"]);
    let header = prop_oneof![9 => Just("x"), 1 => Just("'no header'")];
    let to = prop_oneof![
        8 => Just("{name: s0, port: 80}"),
        2 => Just("{name: s1, port: 80}"),
        1 => Just("{name: s2, port: 80}"),
        1 => Just("{name: s3, port: 80}, {name: s3, port: 81}"),
        1 => Just("{name: s4, port: 81}"),
        1 => Just("{name: s0, port: 80}, {name: none, port: 80}"),
    ];
    (value.clone(), value, header, to).prop_map(|(matched, set, header, to)| {
        format!(
            "{{matches: [{{headers: [{{name: match, value: {matched}}}]}}], backendRefs: [{to}], filters: [{{type: \
             RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: {header}, value: {set}}}]}}}}]}}"
        )
    })
}

#[derive(Clone, Debug)]
enum Event {
    Rules(String),
    Place(String),
    Comments(usize),
    Port(u16),
    Endpoint(&'static str),
    Gone,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        16 => any_rules().prop_map(Event::Rules),
        2 => any_place().prop_map(Event::Place),
        2 => (0..3_usize).prop_map(Event::Comments),
        2 => prop::sample::select(vec![80_u16, 81]).prop_map(Event::Port),
        1 => prop::sample::select(vec!["10.0.0.1", "127.0.0.1"]).prop_map(Event::Endpoint),
        1 => Just(Event::Gone),
    ]
}

fn acme(dir: &std::path::Path) -> AcmeCertificates {
    let settings = AcmeHostSettings {
        directory: dir.join("acme"),
        sealing: Arc::default(),
        dns_hook: None,
        sockets: Arc::new(|_| Vec::new()),
    };
    AcmeCertificates::load(settings).0
}

struct Fixture {
    dir: tempfile::TempDir,
    engine: Engine,
    apps: Vec<App>,
    expected: Transitions,
}

impl Fixture {
    fn new(apps: Vec<App>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("manifests");
        fs::create_dir(&root).expect("a directory");
        fs::write(root.join("gateways.yaml"), GATEWAYS).expect("written");
        let directories = Directories::create(&dir.path().join("state"), &dir.path().join("run"));
        let engine = Engine {
            times: crate::spans::EngineTimes::new(sesame_spans::Spans::default()),
            manifests: Manifests::new(root, LastGood::none()),
            key_sets: FetchedKeySets::load(dir.path().join("key-sets")).0,
            acme: acme(dir.path()),
            resolver: Resolver::default(),
            resolve: Options::default(),
            host: HostSettings {
                pool: vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into()],
                port_map: BTreeMap::new(),
                subscription_budget: 1000,
                limits: sesame_render::limits::Limits::default(),
                budget_each: None,
                trusted_hops: 0,
                zone: String::new(),
                fleet_hosts: 1,
                system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
                session_tickets: false,
                tickets: sesame_apply::tickets::Tickets::once().unwrap(),
                access_log: sesame_envoy::access_log::AccessLogTo::Off,
                allow_local_endpoints: false,
                own_addresses: Vec::new(),
                addresses: crate::addresses::OwnAddresses::new(Vec::new),
                refuse_host_endpoints: false,
                held: BTreeMap::new(),
                endpoint_files: BTreeMap::new(),
                directories: directories.expect("directories"),
                local: sesame_sources::local::LocalFiles::default(),
            },
            known: watch::channel(SourceState::default()).0,
            accepted: Vec::new(),
            found: Vec::new(),
            withdrawal: Withdrawal::new(|| None, watch::channel(0).1),
        };
        let mut fixture = Self {
            dir,
            engine,
            apps,
            expected: Transitions::default(),
        };
        for app in 0..fixture.apps.len() {
            fixture.write(app);
        }
        let scan = fixture.engine.manifests.scan();
        fixture.apply_scan(&scan, 0);
        fixture
    }

    fn path(&self, app: usize) -> PathBuf {
        self.dir.path().join(format!("manifests/app{app}.yaml"))
    }

    fn write(&self, app: usize) {
        fs::write(self.path(app), self.apps[app].text(app)).expect("written");
    }

    /// Returns true if the change was resolved incrementally.
    fn change(&mut self, events: &[(usize, Event)], second: i64) -> bool {
        for (app, event) in events {
            let held = &mut self.apps[*app];
            match event {
                Event::Rules(rules) => held.rules.clone_from(rules),
                Event::Place(place) => held.place.clone_from(place),
                Event::Comments(comments) => held.comments = *comments,
                Event::Port(port) => held.port = *port,
                Event::Endpoint(endpoint) => held.endpoint = endpoint,
                Event::Gone => {
                    let _ = fs::remove_file(self.path(*app));
                    continue;
                }
            }
            self.write(*app);
        }
        let paths: Vec<PathBuf> = events.iter().map(|(app, _)| self.path(*app)).collect();
        let scan = self.engine.manifests.rescan_paths(&paths);
        let wanted = self.engine.known.borrow().gateways.clone();
        let incremental = self.engine.resolve_changes(&scan, &wanted).is_some();
        self.apply_scan(&scan, second);
        incremental && !scan.changed.is_empty()
    }

    fn apply_scan(&mut self, scan: &ScanReport, second: i64) {
        let now = Timestamp::from_second(second).expect("a time");
        self.engine.apply_scan(scan, &Change::All, now);
        let Engine {
            manifests,
            resolve: options,
            host,
            known,
            ..
        } = &self.engine;
        let whole = resolve(manifests.world(), options);
        if !scan.changed.is_empty() {
            self.expected = self.expected.after(&whole.statuses, now);
        }
        let offers: Vec<GatewayRevision> = whole
            .gateways
            .into_iter()
            .map(GatewayRevision::from)
            .collect();
        let (nothing, source) = (Targets::new(), Origin::Source("anew"));
        let expected = render_all(&offers, host, &nothing, source, std::time::Instant::now());
        let known = known.borrow();
        assert!(known.gateways.keys().eq(expected.keys()));
        for (wanted, expected) in known.gateways.values().zip(expected.values()) {
            assert_eq!(wanted.encoded, expected.encoded);
            assert_eq!(wanted.rendered, expected.rendered);
            assert_eq!(wanted.revision(), expected.revision());
            assert_eq!(wanted.assignment, expected.assignment);
            assert_eq!(wanted.options, expected.options);
        }
        assert_eq!(known.world.as_ref(), Some(manifests.world()));
        assert_eq!(*known.transitions, self.expected);
        let found = whole.problems.iter();
        let found = found.map(|p| SourceProblem::of_object(p, manifests.location(&p.object)));
        let problems: Vec<SourceProblem> = scan.problems.iter().cloned().chain(found).collect();
        assert_eq!(*known.problems, problems);
        assert_eq!(known.held, None);
    }
}

fn any_app() -> impl Strategy<Value = App> {
    (any_place(), any_rules()).prop_map(|(place, rules)| App::new(place, rules))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_matches_full_resolution_and_rendering(
        apps in prop::collection::vec(any_app(), 5),
        changes in prop::collection::vec(
            prop::collection::vec((0..5_usize, any_event()), 1..3),
            1..12,
        ),
    ) {
        let mut fixture = Fixture::new(apps);
        for (second, events) in (1..).zip(changes) {
            fixture.change(&events, second);
        }
    }
}

#[test]
fn route_service_and_endpoint_changes_resolve_incrementally() {
    let place = |hostname: &str| format!("parentRefs: [{{name: edge}}], hostnames: [{hostname}]");
    let rule = |value: &str, service: &str| {
        format!(
            "{{backendRefs: [{{name: {service}, port: 80}}], filters: [{{type: RequestHeaderModifier, \
             requestHeaderModifier: {{set: [{{name: x, value: {value}}}]}}}}]}}"
        )
    };
    let apps = [("a.example.com", "s0"), ("b.example.com", "s1")];
    let apps = apps.map(|(hostname, service)| App::new(place(hostname), rule("a", service)));
    let mut fixture = Fixture::new(apps.to_vec());
    let changes = [
        (true, vec![(0, Event::Rules(rule("b", "s0")))]),
        (true, vec![(0, Event::Rules(rule("b", "s1")))]),
        (true, vec![(0, Event::Rules(rule("b", "s0")))]),
        (true, vec![(0, Event::Port(81))]),
        (true, vec![(0, Event::Port(80))]),
        (true, vec![(0, Event::Rules(rule("b", "s1")))]),
        // A new hostname changes the virtual hosts.
        (false, vec![(0, Event::Place(place("c.example.com")))]),
        (
            true,
            vec![
                (0, Event::Comments(3)),
                (0, Event::Rules(rule("c", "s1, port: 80}, {name: none"))),
                (1, Event::Rules(rule("c", "s1"))),
            ],
        ),
        (true, vec![(1, Event::Endpoint("10.0.0.2"))]),
        (
            true,
            vec![
                (0, Event::Endpoint("10.0.0.3")),
                (0, Event::Rules(rule("d", "s1, port: 80}, {name: none"))),
            ],
        ),
        // This endpoint address is reported as a problem.
        (false, vec![(1, Event::Endpoint("127.0.0.1"))]),
        (false, vec![(1, Event::Endpoint("10.0.0.2"))]),
        (true, vec![(1, Event::Port(81))]),
        (false, vec![(1, Event::Gone)]),
    ];
    for (second, (incremental, events)) in (1..).zip(changes) {
        assert_eq!(fixture.change(&events, second), incremental, "{events:?}");
    }
}

#[test]
fn gateways_losing_their_class_serve_until_accepted() {
    let mut fixture = Fixture::new(Vec::new());
    let (accept, accepted) = watch::channel(0);
    fixture.engine.withdrawal = Withdrawal::new(|| Some(Duration::from_secs(300)), accepted);
    let path = fixture.dir.path().join("manifests/gateways.yaml");
    let documents: Vec<&str> = GATEWAYS.split("---").collect();
    let without = |kept: &[usize]| {
        let kept: Vec<&str> = kept.iter().map(|index| documents[*index]).collect();
        kept.join("---")
    };
    let mut wanted = |text: String| {
        fs::write(&path, text).expect("written");
        let scan = fixture
            .engine
            .manifests
            .rescan_paths(std::slice::from_ref(&path));
        fixture
            .engine
            .apply_scan(&scan, &Change::All, Timestamp::UNIX_EPOCH);
        let known = fixture.engine.known.borrow().clone();
        let names: Vec<String> = known.gateways.keys().map(ToString::to_string).collect();
        (names.join(" "), known.held.unwrap_or_default())
    };
    let (names, held) = wanted(without(&[1, 2]));
    assert_eq!(names, "default/edge default/wide");
    let expected = "no longer contain GatewayClass \"sesame\", but Gateways still use it (default/edge, default/wide); the withdrawal is held";
    assert!(held.contains(expected), "{held}");
    let (names, held) = wanted(without(&[1]));
    assert_eq!(names, "default/edge");
    assert!(held.contains("(default/edge)"), "{held}");
    assert_eq!(
        wanted(without(&[0, 1])),
        ("default/edge".to_owned(), String::new())
    );
    let (names, _) = wanted(without(&[1]));
    assert_eq!(names, "default/edge");
    accept.send_modify(|count| *count += 1);
    assert_eq!(wanted(without(&[1])), (String::new(), String::new()));
}
