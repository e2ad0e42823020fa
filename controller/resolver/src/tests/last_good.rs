//! The last valid certificate remains in use, unless its Secret is deleted or the reference is no
//! longer permitted.

use super::http_proxies::proxy;
use super::ingresses::{CLASS, ingress, path, rule};
use super::tls::{Pem, certificate, https, secret};
use super::{ConditionState, HTTP, gateway, holds};
use crate::{Options, Resolution, Resolver, resolve};
use sesame_kinds::api::NamespacedName;
use sesame_kinds::status::{Condition, ConditionType, Reason};
use sesame_kinds::world::{LastGoodKeys, World};

fn https_gateway() -> String {
    gateway(&https("x", "example.org", "{name: s, namespace: far}"))
}

const GRANT: &str = "---\nkind: ReferenceGrant\nmetadata: {name: g, namespace: far}\nspec:\n  from: [{group: \
                     gateway.networking.k8s.io, kind: Gateway, namespace: web}]\n  to: [{group: '', kind: Secret}]\n";

fn after(before: &LastGoodKeys, objects: &str) -> World {
    let mut world = super::world(&(https_gateway() + objects));
    world.last_good = before.clone();
    world
}

fn of(pem: &Pem) -> String {
    secret("far", "s", &pem.certificate, &pem.key)
}

fn served(resolution: &Resolution) -> Option<String> {
    let gateway = resolution.gateways.first()?;
    let open = gateway.snapshot.ports.iter().any(|port| port.port == 443);
    let key = gateway.keys.first()?;
    let chain = String::from_utf8(key.certificate_chain.clone()).expect("text");
    open.then(|| chain.lines().collect())
}

fn refs(resolution: &Resolution) -> &Condition {
    let conditions = resolution.listener_conditions("x");
    conditions
        .iter()
        .find(|condition| condition.type_ == ConditionType::ResolvedRefs)
        .expect("a condition")
}

#[test]
fn broken_secret_keeps_last_good_certificate_while_granted() {
    let (pem, other) = (certificate(&["example.org"]), certificate(&["example.org"]));
    let lines = |pem: &Pem| Some(pem.certificate.lines().collect::<String>());
    let options = Options::default();
    let mut resolver = Resolver::default();
    let world = after(&LastGoodKeys::default(), &(of(&pem) + GRANT));
    let mut resolution = resolver.resolve(&world, &options);
    assert_eq!(served(&resolution), lines(&pem));
    let end = resolution.gateways[0].snapshot.keys[0].not_after;
    let end = jiff::Timestamp::from_second(end)
        .expect("a time")
        .to_string();

    let broken = [
        (
            "another's key",
            secret("far", "s", &pem.certificate, &other.key),
        ),
        ("no key", of(&pem).replace("tls.key", "key")),
        ("cut off", of(&pem).replace("-----END CERTIFICATE-----", "")),
        (
            "of another type",
            of(&pem).replace("kubernetes.io/tls", "Opaque"),
        ),
        ("nonsense", secret("far", "s", "nonsense", "nonsense")),
    ];
    for (what, broken) in &broken {
        let first = after(&LastGoodKeys::default(), &(broken.clone() + GRANT));
        assert_eq!(served(&resolve(&first, &options)), None, "{what}");

        let world = after(&resolution.last_good, &(broken.clone() + GRANT));
        resolution = resolver.resolve(&world, &options);
        assert_eq!(
            resolution,
            resolve(&world, &options),
            "{what}: cached and full resolution differ"
        );
        assert_eq!(served(&resolution), lines(&pem), "{what}");
        let conditions = resolution.listener_conditions("x");
        let invalid = ConditionState::False(Reason::InvalidCertificateRef);
        assert_eq!(
            holds(conditions, ConditionType::ResolvedRefs),
            invalid,
            "{what}"
        );
        assert_eq!(
            holds(conditions, ConditionType::Programmed),
            ConditionState::Unknown,
            "{what}"
        );
        let message = &refs(&resolution).message;
        assert!(message.contains("its last valid certificate"), "{message}");
        assert!(message.contains(&end), "{message}");
    }
    let kept = resolution.last_good.clone();
    let (_, broken) = &broken[0];

    let world = after(&kept, &(of(&other) + GRANT));
    let mended = resolver.resolve(&world, &options);
    assert_eq!(served(&mended), lines(&other));
    let world = after(&mended.last_good, &(broken.clone() + GRANT));
    assert_eq!(served(&resolver.resolve(&world, &options)), lines(&other));

    // Removing the grant or the Secret discards the certificate, even if the grant or an invalid
    // Secret is added again.
    for without in [broken.clone(), GRANT.to_owned()] {
        let world = after(&kept, &without);
        let withdrawn = resolver.resolve(&world, &options);
        assert_eq!(served(&withdrawn), None);
        assert!(!refs(&withdrawn).message.contains("last valid"));
        let world = after(&withdrawn.last_good, &(broken.clone() + GRANT));
        assert_eq!(served(&resolver.resolve(&world, &options)), None);
    }

    // An unreadable Secret may still exist, so its certificate is kept.
    let mut world = after(&kept, GRANT);
    world
        .last_good
        .set_unread(&NamespacedName::new("far", "s"), true);
    let unread = resolver.resolve(&world, &options);
    assert_eq!(served(&unread), lines(&pem));
    assert!(refs(&unread).message.contains("cannot be read"));
}

#[test]
fn hosts_of_proxies_and_ingresses_keep_last_good() {
    let (pem, other) = (certificate(&["h.test"]), certificate(&["h.test"]));
    let good = secret("web", "s", &pem.certificate, &pem.key);
    let proxy = proxy(
        "r",
        "virtualhost: {fqdn: h.test, tls: {secretName: s}}\nroutes: [{services: [{name: a, port: 80}]}]",
    );
    let rules = rule("h.test", &[path("/", "Prefix", "a")]);
    let ingress = ingress(
        "i",
        &format!("tls: [{{hosts: [h.test], secretName: s}}]\n{rules}"),
    );
    for object in [proxy, ingress] {
        let resolved = |secret: &str, before: &LastGoodKeys| {
            let mut world =
                super::world(&[gateway(HTTP).as_str(), CLASS, secret, &object].concat());
            world.last_good = before.clone();
            resolve(&world, &Options::default())
        };
        let before = resolved(&good, &LastGoodKeys::default());
        let chain = served(&before);
        assert!(chain.is_some(), "{object}");
        for broken in [
            secret("web", "s", &pem.certificate, &other.key),
            good.replace("kubernetes.io/tls", "example.com/tls"),
        ] {
            let first = resolved(&broken, &LastGoodKeys::default());
            assert_eq!(served(&first), None, "{object}");
            let kept = resolved(&broken, &before.last_good);
            assert_eq!(served(&kept), chain, "{object}");
            let statuses = format!("{:?}", kept.statuses.routes);
            assert!(
                statuses.contains("its last valid certificate"),
                "{statuses}"
            );
        }
        let deleted = resolved("", &before.last_good);
        assert_eq!(served(&deleted), None, "{object}");
    }
}

#[test]
fn published_pair_is_remembered_after_restart_if_valid() {
    let (pem, other) = (certificate(&["example.org"]), certificate(&["example.org"]));
    let options = Options::default();
    let world = after(&LastGoodKeys::default(), &(of(&pem) + GRANT));
    let published = resolve(&world, &options).gateways.remove(0).keys;
    let broken = secret("far", "s", &pem.certificate, &other.key) + GRANT;
    let world = after(&LastGoodKeys::of_pairs(published.clone()), &broken);
    assert!(served(&resolve(&world, &options)).is_some());

    let mut forged = published;
    forged[0].private_key = other.key.into_bytes();
    let world = after(&LastGoodKeys::of_pairs(forged), &broken);
    assert_eq!(served(&resolve(&world, &options)), None);
}
