//! Regular expressions: what is taken, Envoy takes; what is refused for RE2's sake, RE2 refuses.

#![allow(clippy::expect_used, reason = "tests end where they cannot go on")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::json;
use sesame_agent::envoy::validate::{Verdict, validate};
use sesame_agent::layout::XdsLayout;
use sesame_agent::render;
use sesame_controller::api::decode::{self, Limits};
use sesame_controller::resolve::{Options, resolve};
use sesame_controller::status::{ConditionStatus, ConditionType};
use sesame_controller::world::World;
use sesame_proto::schema::{
    DirectResponse, Listener, PathMatch, Port, Route, RouteTable, Snapshot, VirtualHost,
    path_match, route::Action,
};
use sesame_tests::checks::Checks;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, yaml};

/// Taken by us, so Envoy must take them.
const TAKEN: &[&str] = &[
    // Envoy refuses it unless it is told to allow programs of more than 100 instructions.
    "/(a|b|c){500}/[0-9a-f]{300}",
    "(?i)a",
    "(?U)a+",
    "(?i-s:a)",
    "a(?m)^b$",
    "(?P<n>a)",
    "(?<n1>a)",
    r"\bA\B",
    r"\A/a\z",
    r"\x61\x{61}\xFF",
    r"\a\f\t\n\r\v",
    r"\_\%\-\/\~\@\#\&",
    r"\d\w\s\D\W\S",
    r"[\d_-][^\w.]",
    r"\pL\p{Lu}\P{Nd}[\p{Greek}]",
    r"\p{Any}\p{Common}\p{Inherited}\p{Han}\p{Cyrillic}\p{Arabic}\p{Hebrew}\p{Oriya}",
    r"\p{C}\p{Cc}\p{Cf}\p{Co}\p{Lm}\p{Lo}\p{Lt}\p{M}\p{Mc}\p{Me}\p{Mn}\p{N}\p{Nl}\p{No}",
    r"\p{P}\p{Pc}\p{Pd}\p{Pe}\p{Pf}\p{Pi}\p{Po}\p{Ps}\p{S}\p{Sc}\p{Sk}\p{Sm}\p{So}\p{Z}\p{Zl}\p{Zp}\p{Zs}",
    r"\p{Armenian}\p{Bengali}\p{Devanagari}\p{Ethiopic}\p{Georgian}\p{Gujarati}\p{Gurmukhi}\p{Hangul}",
    r"\p{Hiragana}\p{Kannada}\p{Katakana}\p{Khmer}\p{Lao}\p{Latin}\p{Malayalam}\p{Mongolian}",
    r"\p{Myanmar}\p{Sinhala}\p{Tamil}\p{Telugu}\p{Thai}\p{Tibetan}",
    "[[:alpha:]][[:^digit:]][[:word:]]",
    "[]a][^]a][a-]",
    "a]b}c",
    "(|a)*",
    "(a*)*",
    "(a{100}){10}",
    "((a{10}){10}){10}",
    "a{0}b{2,}c{2}?",
    "a{1000}",
    "^*",
    "é(?:ü)+",
];

/// Known to Rust or a careless author, but refused by RE2.
const REFUSED: &[&str] = &[
    "(?x)a b",
    "(?u)a",
    "(?-u)a",
    "(?R)a",
    "(?P<a.b>a)",
    "(?P<é>a)",
    "[a--b]",
    r"\u{61}",
    r"\u0061",
    r"\U00000061",
    r"\x{100}",
    r"[\x00-\x{10FFFF}]",
    r"\p{greek}",
    r"\p{Letter}",
    r"\p{Alphabetic}",
    r"\p{sc=Greek}",
    r"\p{ASCII}",
    r"\p{LC}",
    r"\p{Cn}",
    "a**",
    "a*+",
    "a{2}{3}",
    "a{2}??",
    "(a{100}){11}",
    "((a{10}){10}){11}",
    "(a{0,500}){0,3}",
    "a{1001}",
    "a{2,1}",
    "(a)\\1",
    "(?=a)",
    "(?<!a)b",
    "(?>a)",
    "[z-a]",
    "(",
    "[[:foo:]]",
];

/// RE2 takes them, but not as they are meant or read by us.
const MISREAD: &[&str] = &[
    "[a&&b]",
    "[a~~b]",
    "[a[bc]]",
    r"\<a",
    r"a\>",
    r"\b{start}a",
    "a{,5}",
    "a{ 2 }",
    "é+",
    "[éü]",
];

#[tokio::test]
async fn what_is_taken_envoy_takes_and_what_is_refused_re2_refuses() {
    let envoy = envoy_binary();
    let directory = tempfile::tempdir().expect("a directory");
    let mut checks = Checks::default();
    for (patterns, ours, envoys) in [
        (TAKEN, true, true),
        (REFUSED, false, false),
        (MISREAD, false, true),
    ] {
        let taken = taken(patterns);
        for pattern in patterns {
            checks.same(format!("{pattern}: we"), taken[pattern], ours);
            let said = envoy_takes(&envoy, directory.path(), pattern).await;
            checks.same(format!("{pattern}: Envoy"), said, envoys);
        }
    }
    checks.finish();
}

/// Whether a route with this expression is accepted.
fn taken(patterns: &'static [&'static str]) -> BTreeMap<&'static str, bool> {
    let mut objects = edge(&[http_listener("http", 80, "")]);
    for (i, pattern) in patterns.iter().enumerate() {
        let mut rule = rule_to("none", &[path("RegularExpression", pattern)]);
        rule["name"] = json!("rule");
        objects.push(http_route(&format!("route-{i}"), &[], &[rule]));
    }
    let mut world = World::default();
    let text = yaml(&objects);
    for document in decode::split(&text) {
        for decoded in decode::decode(document.text, &Limits::default()) {
            world.insert(decoded.expect("valid objects").object);
        }
    }
    let statuses = resolve(&world, &Options::default()).statuses;
    let accepted = |i: usize| {
        let (_, status) = statuses
            .routes
            .iter()
            .find(|(key, _)| key.name.name == format!("route-{i}"))
            .expect("a status");
        status.parents[0].conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Accepted && condition.status == ConditionStatus::True
        })
    };
    patterns
        .iter()
        .enumerate()
        .map(|(i, pattern)| (*pattern, accepted(i)))
        .collect()
}

/// Whether Envoy takes a route table with this expression.
async fn envoy_takes(envoy: &Path, directory: &Path, pattern: &str) -> bool {
    let route = Route {
        name: "route".to_owned(),
        path: Some(PathMatch {
            kind: Some(path_match::Kind::Regex(pattern.to_owned())),
        }),
        action: Some(Action::DirectResponse(DirectResponse { status: 500 })),
        ..Route::default()
    };
    let snapshot = Snapshot {
        ports: vec![Port {
            port: 80,
            listeners: vec![Listener {
                name: "listener".to_owned(),
                route_table: "table".to_owned(),
                ..Listener::default()
            }],
            ..Port::default()
        }],
        route_tables: vec![RouteTable {
            name: "table".to_owned(),
            virtual_hosts: vec![VirtualHost {
                domain: "*".to_owned(),
                routes: vec![route],
            }],
        }],
        ..Snapshot::default()
    };
    let options = render::Options {
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        port_map: BTreeMap::new(),
        subscription_budget: 100,
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: 0,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: render::EndpointRules::default(),
    };
    let rendered = render::render(&snapshot, &[], &options);
    assert_eq!(rendered.problems, [], "{pattern}");
    let bootstrap = render::static_bootstrap(&rendered).expect("what was rendered");
    match validate(envoy, directory, &bootstrap)
        .await
        .expect("Envoy runs")
    {
        Verdict::Valid => true,
        Verdict::Invalid { envoy_words } => {
            assert!(envoy_words.contains("configuration"), "{envoy_words}");
            false
        }
    }
}
