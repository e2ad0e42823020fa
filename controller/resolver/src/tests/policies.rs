//! BackendTLSPolicies: precedence, effects on Backends, and statuses.

use sesame_proto::schema::{BackendTls, Snapshot};

use super::{ConditionState, HTTP, gateway, holds, resolved, route};
use crate::Resolution;
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{ConditionType, PolicyAncestorStatus, Reason};
use sesame_kinds::world::Kind;

const SYSTEM: &str = "{hostname: good.test, wellKnownCACertificates: System}";

fn policy(name: &str, target: &str, validation: &str) -> String {
    format!(
        "---\nkind: BackendTLSPolicy\nmetadata: {{name: {name}, namespace: web, generation: 4}}\nspec: {{targetRefs: \
         [{{group: '', kind: Service, {target}}}], validation: {validation}}}\n"
    )
}

fn to(backend: &str) -> String {
    route("r", &format!("rules: [{{backendRefs: [{backend}]}}]"))
}

fn served(policies: &str) -> Resolution {
    resolved(&(gateway(HTTP) + &to("{name: a, port: 80}") + policies))
}

fn ancestors<'r>(resolution: &'r Resolution, name: &str) -> &'r [PolicyAncestorStatus] {
    let key = Kind::BackendTlsPolicy.named(NamespacedName::new("web", name));
    let statuses = &resolution.statuses.policies;
    statuses.get(&key).map_or(&[], |status| &status.ancestors)
}

fn says(resolution: &Resolution, name: &str) -> (ConditionState, ConditionState) {
    let [only] = ancestors(resolution, name) else {
        panic!("expected one ancestor");
    };
    assert!(only.conditions.iter().all(|c| c.observed_generation == 4));
    (
        holds(&only.conditions, ConditionType::Accepted),
        holds(&only.conditions, ConditionType::ResolvedRefs),
    )
}

fn tls(snapshot: &Snapshot) -> Option<&BackendTls> {
    snapshot.backends.first()?.tls.as_deref()
}

#[test]
fn invalid_policy_refuses_backend_and_reports_why() {
    let invalid = (ConditionState::False(Reason::Invalid), ConditionState::True);
    let no_ca = |reason| {
        (
            ConditionState::False(Reason::NoValidCaCertificate),
            ConditionState::False(reason),
        )
    };
    for (validation, expected) in [
        ("{hostname: good.test}", &invalid),
        (
            "{hostname: good.test, wellKnownCACertificates: Mine}",
            &invalid,
        ),
        (
            "{hostname: good.test, wellKnownCACertificates: System, caCertificateRefs: [{group: '', kind: ConfigMap, name: x}]}",
            &invalid,
        ),
        (
            "{hostname: '*.test', wellKnownCACertificates: System}",
            &invalid,
        ),
        ("{hostname: '', wellKnownCACertificates: System}", &invalid),
        (
            "{hostname: good.test, wellKnownCACertificates: System, subjectAltNames: [{type: Email, hostname: a}]}",
            &invalid,
        ),
        (
            "{hostname: good.test, caCertificateRefs: [{group: '', kind: ConfigMap, name: x}]}",
            &no_ca(Reason::InvalidCaCertificateRef),
        ),
        (
            "{hostname: good.test, caCertificateRefs: [{group: '', kind: Secret, name: x}]}",
            &no_ca(Reason::InvalidKind),
        ),
        (
            "{hostname: good.test, caCertificateRefs: [{group: '', kind: ConfigMap, name: x, namespace: other}]}",
            &no_ca(Reason::InvalidCaCertificateRef),
        ),
    ] {
        let resolution = served(&policy("p", "name: a", validation));
        assert_eq!(says(&resolution, "p"), *expected, "{validation}");
        let snapshot = &resolution.gateways[0].snapshot;
        assert!(snapshot.backends.is_empty(), "{validation}");
        let conditions = resolution.route_conditions("r");
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            ConditionState::True
        );
        assert!(!resolution.problems.is_empty());
    }
}

#[test]
fn policy_for_port_precedes_service_and_oldest_wins() {
    let named =
        |hostname: &str| format!("{{hostname: {hostname}, wellKnownCACertificates: System}}");
    let section = "name: a, sectionName: http";
    for (policies, applied, losers) in [
        (vec![("b", "name: a"), ("c", "name: a")], "b", vec!["c"]),
        (vec![("b", "name: a"), ("c", section)], "c", vec![]),
        (vec![("b", section), ("a", section)], "a", vec!["b"]),
        (
            vec![("b", "name: a, sectionName: ''"), ("c", "name: a")],
            "b",
            vec!["c"],
        ),
    ] {
        let text: String = policies
            .iter()
            .map(|(name, target)| policy(name, target, &named(&format!("{name}.test"))))
            .collect();
        let resolution = served(&text);
        let applied = format!("{applied}.test");
        assert_eq!(
            tls(&resolution.gateways[0].snapshot).map(|tls| tls.sni.as_str()),
            Some(applied.as_str())
        );
        for (name, _) in policies {
            let expected = if losers.contains(&name) {
                ConditionState::False(Reason::Conflicted)
            } else {
                ConditionState::True
            };
            assert_eq!(says(&resolution, name).0, expected, "{text}");
        }
    }
}

#[test]
fn missing_policy_target_is_reported_when_route_refers() {
    for target in ["name: a, sectionName: other", "name: missing"] {
        let backend = if target.contains("missing") {
            "missing"
        } else {
            "a"
        };
        let resolution = resolved(
            &(gateway(HTTP)
                + &to(&format!("{{name: {backend}, port: 80}}"))
                + &policy("p", target, SYSTEM)),
        );
        assert_eq!(
            says(&resolution, "p").0,
            ConditionState::False(Reason::TargetNotFound),
            "{target}"
        );
        // The policy targets a different port of the Service, so it does not affect port 80.
        let plain = resolution.gateways[0].snapshot.backends.first();
        assert!(plain.is_none_or(|backend| backend.tls.is_none()));
    }
    let nobody = resolved(&(gateway(HTTP) + &policy("p", "name: a", SYSTEM)));
    assert!(ancestors(&nobody, "p").is_empty());
}

#[test]
fn policies_apply_to_mirrors_and_every_gateway() {
    let mirrored = route(
        "r",
        "rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: a, port: 80}}}], backendRefs: \
         [{name: b, port: 80}]}]",
    );
    let resolution = resolved(&(gateway(HTTP) + &mirrored + &policy("p", "name: a", SYSTEM)));
    assert!(tls(&resolution.gateways[0].snapshot).is_some());

    let second = gateway(HTTP).replace("name: gw", "name: gw2");
    let both = route(
        "r",
        "parentRefs: [{name: gw}, {name: gw2}]\nrules: [{backendRefs: [{name: a, port: 80}]}]",
    );
    let resolution = resolved(&(gateway(HTTP) + &second + &both + &policy("p", "name: a", SYSTEM)));
    let names: Vec<&str> = ancestors(&resolution, "p")
        .iter()
        .map(|ancestor| ancestor.ancestor_ref.name.as_str())
        .collect();
    assert_eq!(names, ["gw", "gw2"]);
}

#[test]
fn policies_apply_to_all_but_tls_passthrough() {
    let listeners = "- {name: end, port: 1, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: x}]}}\n\
                     - {name: pass, port: 2, protocol: TLS, tls: {mode: Passthrough}}\n\
                     - {name: tcp, port: 3, protocol: TCP}";
    for (kind, section, heeds) in [
        ("TLSRoute", "end", true),
        ("TLSRoute", "pass", false),
        ("TCPRoute", "tcp", true),
    ] {
        let hostnames = if kind == "TLSRoute" {
            "hostnames: [a.test], "
        } else {
            ""
        };
        let route = format!(
            "---\nkind: {kind}\nmetadata: {{name: r, namespace: web}}\nspec: {{parentRefs: [{{name: gw, sectionName: \
             {section}}}], {hostnames}rules: [{{backendRefs: [{{name: a, port: 80}}]}}]}}\n"
        );
        let resolution = resolved(&(gateway(listeners) + &route + &policy("p", "name: a", SYSTEM)));
        assert_eq!(
            ancestors(&resolution, "p").len(),
            usize::from(heeds),
            "{section}"
        );
        let snapshot = &resolution.gateways[0].snapshot;
        assert!(snapshot.backends.iter().all(|b| b.tls.is_some() == heeds));
    }
}

#[test]
fn policy_lists_sixteen_gateways_and_applies_to_more() {
    let gateways: String = (10..27)
        .map(|i| gateway(HTTP).replace("name: gw", &format!("name: gw{i}")))
        .collect();
    let parents: Vec<String> = (10..27).map(|i| format!("{{name: gw{i}}}")).collect();
    let spec = format!(
        "parentRefs: [{}]\nrules: [{{backendRefs: [{{name: a, port: 80}}]}}]",
        parents.join(", ")
    );
    let resolution = resolved(&(gateways + &route("r", &spec) + &policy("p", "name: a", SYSTEM)));
    // Resolution does not truncate the ancestors, because only the status writer knows the stored
    // ancestors.
    assert_eq!(ancestors(&resolution, "p").len(), 17);
    assert_eq!(resolution.problems.len(), 1);
    assert_eq!(resolution.problems[0].object.name.name, "p");
    assert_eq!(resolution.gateways.len(), 17);
    assert!(
        resolution
            .gateways
            .iter()
            .all(|g| tls(&g.snapshot).is_some())
    );
}

fn large_authority(name: &str) -> String {
    let padding = "x".repeat(50);
    let names: Vec<String> = (0..5_800).map(|i| format!("{padding}{i}.test")).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let pem = made.cert.pem().replace('\n', "\n    ");
    format!(
        "---\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: web}}\ndata:\n  ca.crt: |\n    {pem}\n"
    )
}

#[test]
fn authorities_too_large_together_refuse_the_policy() {
    let maps = large_authority("one") + &large_authority("two") + &large_authority("three");
    let validation = |names: &[&str]| {
        let references: Vec<String> = names
            .iter()
            .map(|name| format!("{{group: '', kind: ConfigMap, name: {name}}}"))
            .collect();
        format!(
            "{{hostname: good.test, caCertificateRefs: [{}]}}",
            references.join(", ")
        )
    };
    let resolution =
        served(&(maps.clone() + &policy("p", "name: a", &validation(&["one", "two"]))));
    assert_eq!(
        says(&resolution, "p"),
        (ConditionState::True, ConditionState::True)
    );
    let all = policy("p", "name: a", &validation(&["one", "two", "three"]));
    let resolution = served(&(maps + &all));
    let refused = (
        ConditionState::False(Reason::NoValidCaCertificate),
        ConditionState::False(Reason::InvalidCaCertificateRef),
    );
    assert_eq!(says(&resolution, "p"), refused);
    assert!(resolution.gateways[0].snapshot.backends.is_empty());
}

#[test]
fn combinations_of_authorities_have_a_share_per_namespace() {
    let maps: String = (0..20)
        .map(|i| large_authority(&format!("ca-{i:02}")))
        .collect();
    let policies: String = (0..20)
        .map(|i| {
            let validation = format!(
                "{{hostname: good.test, caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca-{i:02}}}]}}"
            );
            let target = format!("name: a, sectionName: p{i}");
            // The second policy with the same bundle does not add to the namespace's usage.
            let first = policy(&format!("p-{i:02}"), &target, &validation);
            first + &policy(&format!("q-{i:02}"), &target, &validation)
        })
        .collect();
    let resolution = served(&(maps + &policies));
    let is_refused = |name: &str| {
        let conditions = ancestors(&resolution, name).iter();
        let mut resolved =
            conditions.map(|one| holds(&one.conditions, ConditionType::ResolvedRefs));
        resolved.any(|holds| holds == ConditionState::False(Reason::InvalidCaCertificateRef))
    };
    let good: Vec<bool> = (0..20).map(|i| !is_refused(&format!("p-{i:02}"))).collect();
    let count = good.iter().filter(|good| **good).count();
    assert!((16..19).contains(&count), "{good:?}");
    for (i, good) in good.iter().enumerate() {
        assert_eq!(is_refused(&format!("q-{i:02}")), !good);
    }
}
