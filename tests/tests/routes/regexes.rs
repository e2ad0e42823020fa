//! Regular expressions. Envoy must accept every expression that Sesame accepts. RE2 must reject the
//! expressions that Sesame rejects as unsupported by RE2.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use prost::encoding::encode_varint;
use serde_json::json;
use sesame_envoy::validate::{Validity, validate};
use sesame_kinds::decode::{self, DecodeLimits};
use sesame_kinds::status::{ConditionStatus, ConditionType};
use sesame_kinds::world::World;
use sesame_proto::expressions;
use sesame_proto::schema::{
    DirectResponse, Listener, PathMatch, Port, Route, RouteTable, Snapshot, VirtualHost,
    path_match, route::Action,
};
use sesame_resolver::{Options, resolve};
use sesame_tests::checks::Checks;
use sesame_tests::envoy::envoy_binary;
use sesame_tests::manifests::{edge, http_listener, http_route, path, rule_to, yaml};
use sesame_tests::rendering::options;
use sesame_tests::seeded::Moments;

const TAKEN: &[&str] = &[
    // Exceeds Envoy's default limit of 100 instructions.
    "/(?:a|b|c){100}/[0-9a-f]{300}",
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

/// Some are valid for Rust's `regex` crate, others are likely mistakes.
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

/// RE2 interprets these expressions differently than users intend or Sesame assumes.
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
async fn regex_validation_agrees_with_envoy() {
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
            let accepted = envoy_takes(&envoy, directory.path(), pattern).await;
            checks.same(format!("{pattern}: Envoy"), accepted, envoys);
        }
    }
    checks.finish();
}

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
        for decoded in decode::decode(document.text, &DecodeLimits::default()) {
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

/// Replaces a rendered placeholder, because the renderer might omit the expression.
async fn envoy_takes(envoy: &Path, directory: &Path, pattern: &str) -> bool {
    let placeholder = "q".repeat(pattern.len());
    let route = Route {
        name: "route".to_owned(),
        path: Some(PathMatch {
            kind: Some(path_match::Kind::Regex(placeholder.clone())),
        }),
        action: Some(Action::DirectResponse(DirectResponse::new(500))),
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
                ..VirtualHost::default()
            }],
        }],
        ..Snapshot::default()
    };
    let options = options(vec![Ipv4Addr::LOCALHOST.into()]);
    let rendered = sesame_render::render(&snapshot, &[], &options);
    assert_eq!(rendered.problems, [], "{pattern}");
    let mut bootstrap = sesame_render::static_bootstrap(&rendered)
        .expect("the rendered bootstrap")
        .to_vec();
    let (placeholder, field) = (encoded(&placeholder), encoded(pattern));
    let mut places = (0..bootstrap.len()).filter(|at| bootstrap[*at..].starts_with(&placeholder));
    let at = places
        .next()
        .expect("the bootstrap contains the placeholder");
    assert_eq!(places.count(), 0, "{pattern}");
    bootstrap[at..at + field.len()].copy_from_slice(&field);
    match validate(envoy, directory, &bootstrap)
        .await
        .expect("Envoy runs")
    {
        Validity::Valid => true,
        Validity::Invalid { envoy_words } => {
            assert!(envoy_words.contains("configuration"), "{envoy_words}");
            false
        }
    }
}

/// Encodes field 2 of `RegexMatcher`.
fn encoded(pattern: &str) -> Vec<u8> {
    let mut field = vec![2 << 3 | 2];
    encode_varint(pattern.len() as u64, &mut field);
    field.extend_from_slice(pattern.as_bytes());
    field
}

/// Sesame's count must never be lower than RE2's, and must permit ordinary expressions.
#[tokio::test]
async fn regex_programs_stay_within_counted_instructions() {
    let mut patterns: Vec<String> = TAKEN.iter().map(|pattern| (*pattern).to_owned()).collect();
    patterns.extend(ORDINARY.iter().map(|pattern| (*pattern).to_owned()));
    let mut moments = Moments::new();
    while patterns.len() < 1000 {
        let depth = 2 + moments.below(4);
        let mut pattern = made_up(&mut moments, depth);
        if moments.below(5) == 0 {
            pattern.insert_str(0, "(?i)");
        }
        let size = expressions::instructions(&pattern).expect("the pattern parses");
        if size < 5000 {
            patterns.push(pattern);
        }
    }
    let mut checks = Checks::default();
    for (pattern, re2) in patterns.iter().zip(program_sizes(&patterns).await) {
        let ours = expressions::instructions(pattern).expect("the pattern parses");
        checks.that(
            ours >= re2,
            format!("{pattern}: {ours}, but RE2 counts {re2}"),
        );
        if ORDINARY.contains(&pattern.as_str()) {
            checks.that(
                ours <= re2 + re2 / 4 + 8,
                format!("{pattern}: {ours}, but RE2 counts only {re2}"),
            );
        }
    }
    checks.finish();
}

const ORDINARY: &[&str] = &[
    "/api/v[0-9]+/users/[^/]+/(orders|items)(/.*)?",
    "/foo(/|$)(.*)",
    r"/.*\.(png|jpe?g|gif|svg|css|js)",
    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "[ab]*a[ab]{900}c",
    "(?i)mozilla/5.0 .*(iphone|android).*",
];

fn made_up(moments: &mut Moments, depth: u64) -> String {
    const LEAVES: &[&str] = &[
        "a",
        "k",
        "s",
        "/",
        "7",
        "_",
        "[ab]",
        "[a-z]",
        "[^/]",
        "[a-zA-Z0-9_.]",
        ".",
        "(?s:.)",
        r"\d",
        r"\w",
        r"\S",
        "[^a-z0-9]",
        "[X-c]",
        r"\p{L}",
        r"\PN",
        "^",
        "$",
        r"\b",
        r"\B",
        "(?:)",
        "é",
        r"\xe9",
        "[[:punct:]]",
        "[[:^word:]x]",
    ];
    let mut pick = |bound: u64| usize::try_from(moments.below(bound)).expect("fits into usize");
    if depth == 0 || pick(10) < 3 {
        return LEAVES[pick(LEAVES.len() as u64)].to_owned();
    }
    let (open, shape, parts, lazy) = (
        ["(", "(?:"][pick(2)],
        pick(8),
        2 + pick(3),
        ["", "?"][pick(2)],
    );
    let (least, more) = (pick(7), 1 + pick(6));
    let mut part = || made_up(moments, depth - 1);
    match shape {
        0 | 1 => {
            let parts: Vec<String> = (0..parts).map(|_| part()).collect();
            format!("(?:{})", parts.join(")(?:"))
        }
        2 => format!(
            "{open}{})",
            (0..parts).map(|_| part()).collect::<Vec<_>>().join("|")
        ),
        3 => format!("{open}{})*{lazy}", part()),
        4 => format!("{open}{})+{lazy}", part()),
        5 => format!("{open}{})?{lazy}", part()),
        6 => format!("{open}{}){{{least},{}}}{lazy}", part(), least + more),
        _ => format!("{open}{}){{{least},}}{lazy}", part()),
    }
}

/// Returns the sizes that Envoy logs in warnings.
async fn program_sizes(patterns: &[String]) -> Vec<u64> {
    let routes: Vec<_> = patterns
        .iter()
        .map(|pattern| json!({"match": {"safe_regex": {"regex": pattern}}, "direct_response": {"status": 500}}))
        .collect();
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "a",
        "http_filters": [{"name": "router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
    });
    let bootstrap = json!({
        "node": {"id": "a", "cluster": "a"},
        "layered_runtime": {"layers": [{"name": "sizes", "static_layer": {
            "re2.max_program_size.error_level": 1_000_000, "re2.max_program_size.warn_level": 0}}]},
        "static_resources": {"listeners": [{
            "name": "a",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
            "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}],
        }]},
    });
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bootstrap.json");
    std::fs::write(&file, bootstrap.to_string()).expect("written");
    let run = tokio::process::Command::new(envoy_binary())
        .args([
            "--mode",
            "validate",
            "--log-level",
            "warning",
            "--config-path",
        ])
        .arg(&file)
        .output()
        .await
        .expect("Envoy runs");
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{stderr}");
    let sizes: Vec<u64> = stderr
        .split("RE2 program size of ")
        .skip(1)
        .filter_map(|rest| rest.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(sizes.len(), patterns.len(), "Envoy warns of each");
    sizes
}
