//! Every field and annotation of the sources has a specific verdict.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use sesame_kinds::api::{
    ExtensionServiceSpec, HttpProxySpec, NGINX_PREFIX, TlsCertificateDelegationSpec,
};
use sesame_resolver::nginx_annotations::{Effect, NginxAnnotation};

use super::super::Conversion;
use super::super::verdicts::{FieldRow, FieldVerdict};
use super::equivalence::from;
use super::parse;
use super::schemas::{leaves, set};

const NO_COUNTERPART: &str = "Sesame has no counterpart, or this version does not know the field";

/// Returns the verdict on a field or on its nearest parent with a verdict.
pub(super) fn verdict<'c>(
    conversion: &'c Conversion,
    object: &str,
    field: &str,
) -> Option<&'c FieldRow> {
    let object = conversion
        .rows
        .iter()
        .find(|it| it.object.to_string() == object)?;
    let covers = |row: &&FieldRow| {
        let path = row.path.as_str();
        field == path
            || field
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with(['.', '[']))
    };
    object
        .rows
        .iter()
        .filter(covers)
        .max_by_key(|row| row.path.len())
}

pub(super) fn is_generic(row: &FieldRow) -> bool {
    matches!(&row.verdict, FieldVerdict::Refused(refused) if refused.reason == NO_COUNTERPART)
}

/// Returns a valid value, and other annotations that it needs.
fn sample(annotation: NginxAnnotation) -> (&'static str, &'static [(&'static str, &'static str)]) {
    use NginxAnnotation as A;
    match annotation {
        A::Affinity => ("cookie", &[]),
        A::AllowlistSourceRange | A::WhitelistSourceRange | A::DenylistSourceRange => {
            ("10.0.0.0/8", &[])
        }
        A::AppRoot => ("/app", &[]),
        A::AuthMethod => ("GET", &[("auth-url", "http://auth.shop.svc/check")]),
        A::AuthResponseHeaders => ("x-user", &[("auth-url", "http://auth.shop.svc/check")]),
        A::AuthSecret => ("users", &[("auth-type", "basic")]),
        A::AuthSecretType => (
            "auth-file",
            &[("auth-type", "basic"), ("auth-secret", "users")],
        ),
        A::AuthType => ("basic", &[("auth-secret", "users")]),
        A::AuthUrl => ("http://auth.shop.svc/check", &[]),
        A::BackendProtocol => ("HTTPS", &[]),
        A::CanaryWeight => ("20", &[("canary", "true")]),
        A::CanaryWeightTotal => ("200", &[("canary", "true")]),
        A::CanaryByCookie | A::CanaryByHeader => ("canary", &[("canary", "true")]),
        A::CanaryByHeaderPattern | A::CanaryByHeaderValue => {
            ("yes", &[("canary", "true"), ("canary-by-header", "x")])
        }
        A::CorsAllowOrigin => ("https://a.example.com", &[("enable-cors", "true")]),
        A::CorsAllowMethods => ("GET", &[("enable-cors", "true")]),
        A::CorsAllowHeaders | A::CorsExposeHeaders => ("x-a", &[("enable-cors", "true")]),
        A::CorsMaxAge => ("600", &[("enable-cors", "true")]),
        A::CorsAllowCredentials => ("true", &[("enable-cors", "true")]),
        A::CustomHeaders => ("headers", &[]),
        A::LimitBurstMultiplier => ("2", &[("limit-rps", "10")]),
        A::LimitRps | A::LimitRpm => ("10", &[]),
        A::LoadBalance => ("ewma", &[]),
        A::MirrorRequestBody => ("on", &[]),
        A::MirrorTarget => ("http://copy.shop.svc$request_uri", &[]),
        A::PermanentRedirect | A::TemporalRedirect => ("https://new.example.com", &[]),
        A::PermanentRedirectCode => ("308", &[("permanent-redirect", "https://new.example.com")]),
        A::TemporalRedirectCode => ("307", &[("temporal-redirect", "https://new.example.com")]),
        A::ProxyBodySize => ("8m", &[]),
        A::ProxyConnectTimeout | A::ProxyReadTimeout | A::ProxySendTimeout => ("30", &[]),
        A::ProxyNextUpstream => ("error", &[]),
        A::ProxyNextUpstreamTries => ("2", &[]),
        A::RewriteTarget => ("/new", &[]),
        A::Satisfy => ("all", &[]),
        A::ServerAlias => ("alias.example.com", &[]),
        A::SessionCookieName => ("sid", &[("affinity", "cookie")]),
        A::SessionCookiePath => ("/cart", &[("affinity", "cookie")]),
        A::SessionCookieMaxAge | A::SessionCookieExpires => ("600", &[("affinity", "cookie")]),
        A::UpstreamHashBy => ("$remote_addr", &[]),
        A::UpstreamVhost => ("shop.internal", &[]),
        A::XForwardedPrefix => ("/shop", &[]),
        _ => ("true", &[]),
    }
}

fn ingress(annotations: &[(&str, &str)]) -> Value {
    let annotations = annotations.iter();
    let annotations =
        annotations.map(|(name, value)| (format!("{NGINX_PREFIX}{name}"), json!(value)));
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": "shop",
            "namespace": "shop",
            "annotations": annotations.collect::<Map<_, _>>(),
        },
        "spec": {
            "ingressClassName": "nginx",
            "tls": [{"hosts": ["shop.example.com"], "secretName": "shop"}],
            "rules": [{"host": "shop.example.com", "http": {"paths": [{
                "path": "/",
                "pathType": "Prefix",
                "backend": {"service": {"name": "shop", "port": {"number": 80}}},
            }]}}],
        },
    })
}

fn converted(annotation: NginxAnnotation) -> (Conversion, String) {
    let (value, others) = sample(annotation);
    let mut annotations = others.to_vec();
    annotations.push((annotation.as_str(), value));
    let headers = "
apiVersion: v1
kind: ConfigMap
metadata: {name: headers, namespace: shop}
data: {x-a: b}
";
    let mut objects = parse(headers);
    objects.push(ingress(&annotations));
    let field = format!("metadata.annotations.{NGINX_PREFIX}{}", annotation.as_str());
    (from("ingress-nginx", &objects, &[]), field)
}

#[test]
fn every_annotation_has_a_verdict() {
    for annotation in NginxAnnotation::ALL {
        let (conversion, field) = converted(*annotation);
        let row = verdict(&conversion, "Ingress/shop/shop", &field);
        let row = row.unwrap_or_else(|| panic!("{field} has no verdict"));
        assert!(!is_generic(row), "{field}");
        assert!(
            !matches!(&row.verdict, FieldVerdict::Refused(it) if it.reason.contains("expected")),
            "{row:?}"
        );
        let is_written = conversion
            .objects
            .iter()
            .any(|it| it["kind"] == "HTTPRoute");
        if annotation.effect() == Effect::Guards && matches!(row.verdict, FieldVerdict::Refused(_))
        {
            assert!(!is_written, "{field} is lost");
        }
    }
}

#[test]
fn invalid_guard_stops_its_ingress() {
    let mut kept = Vec::new();
    for annotation in NginxAnnotation::ALL {
        let is_read = !matches!(converted(*annotation).0.objects.len(), 0);
        if annotation.effect() == Effect::Tunes || !is_read {
            continue;
        }
        let (_, others) = sample(*annotation);
        let mut annotations = others.to_vec();
        annotations.push((annotation.as_str(), "\u{7f}"));
        let conversion = from("ingress-nginx", &[ingress(&annotations)], &[]);
        let is_written = conversion
            .objects
            .iter()
            .any(|it| it["kind"] == "HTTPRoute");
        if is_written {
            kept.push(annotation.as_str());
        }
    }
    assert_eq!(kept, Vec::<&str>::new());
}

#[test]
fn unknown_annotation_stops_its_ingress() {
    let conversion = from(
        "ingress-nginx",
        &[ingress(&[("new-protection", "on")])],
        &[],
    );
    assert!(!conversion.is_complete());
    assert!(
        conversion
            .objects
            .iter()
            .all(|it| it["kind"] != "HTTPRoute")
    );
}

#[test]
fn annotation_of_wrong_type_stops_its_ingress() {
    let mut object = ingress(&[]);
    object["metadata"]["annotations"] = json!({format!("{NGINX_PREFIX}limit-rps"): 10});
    let conversion = from("ingress-nginx", &[object], &[]);
    assert!(!conversion.is_complete());
    assert!(conversion.objects.is_empty());
}

const TREE: &str = "
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: shop, namespace: shop}
spec:
  virtualhost:
    fqdn: shop.example.com
    tls: {secretName: shop}
    jwtProviders: [{name: corp, issuer: 'https://id.example.com', localJWKS: {secretName: keys, key: keys}}]
  includes: [{name: team}]
  routes: [{services: [{name: shop, port: 80}]}]
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: team, namespace: shop}
spec: {routes: [{conditions: [{prefix: /team}], services: [{name: shop, port: 80}]}]}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: tcp, namespace: shop}
spec: {tcpproxy: {services: [{name: shop, port: 80}]}}
---
apiVersion: projectcontour.io/v1
kind: TLSCertificateDelegation
metadata: {name: shop, namespace: shop}
spec: {delegations: [{secretName: shop, targetNamespaces: [team]}]}
---
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {name: auth, namespace: shop}
spec: {protocol: h2c, services: [{name: auth, port: 80}]}
";

/// Sets each field of an object in turn. Returns the names of the fields with a verdict, and the
/// verdicts.
fn verdicts<T: JsonSchema>(kind: &str, name: &str) -> Vec<(String, &'static str)> {
    let leaves = leaves::<T>().into_iter();
    let verdicts = leaves.map(|(path, value)| {
        let mut objects = parse(TREE);
        let named = |it: &&mut Value| it["kind"] == *kind && it["metadata"]["name"] == *name;
        let object = objects.iter_mut().find(named).expect("an object");
        let answers = ["spec.routes[0].request", "spec.routes[0].direct"];
        if answers.iter().any(|answer| path.starts_with(answer)) {
            object["spec"]["routes"][0] = json!({});
        }
        if path.ends_with("tls.passthrough") {
            object["spec"]["tcpproxy"] = json!({"services": [{"name": "shop", "port": 80}]});
        }
        set(object, &path, value);
        let conversion = from("contour", &objects, &[]);
        let id = format!("{kind}/shop/{name}");
        let row = verdict(&conversion, &id, &path);
        let row = row.unwrap_or_else(|| panic!("{path} has no verdict"));
        assert!(!is_generic(row), "{path}: {row:?}");
        (row.accepted_as(), row.verdict.word())
    });
    verdicts.collect()
}

#[test]
fn every_field_of_contour_has_a_verdict() {
    assert!(verdicts::<HttpProxySpec>("HTTPProxy", "shop").len() > 100);
    let delegation = "TLSCertificateDelegation";
    assert_eq!(
        verdicts::<TlsCertificateDelegationSpec>(delegation, "shop").len(),
        2
    );
    assert!(verdicts::<ExtensionServiceSpec>("ExtensionService", "auth").len() > 10);
}

#[test]
fn unknown_field_of_proxy_stops_its_host() {
    for path in [
        "spec.newProtection",
        "spec.virtualhost.newProtection",
        "spec.virtualhost.tls.newProtection",
        "spec.routes[0].newProtection",
        "spec.routes[0].services[0].newProtection",
    ] {
        let mut objects = parse(TREE);
        set(&mut objects[0], path, json!({"mode": "Strict"}));
        let conversion = from("contour", &objects, &[]);
        assert!(!conversion.is_complete(), "{path}");
        let routes = conversion
            .objects
            .iter()
            .filter(|it| it["kind"] == "HTTPRoute");
        assert_eq!(routes.count(), 0, "{path}");
    }
}

const PAGE: &str = "docs/reference/convert.md";
const START: &str = "are carried or not needed.\n\n";

/// Returns a table of the names by verdict. Names whose setting is carried unchanged, or not
/// needed, are left out.
pub(super) fn table(what: &str, names: impl IntoIterator<Item = (String, &'static str)>) -> String {
    let names: Vec<(String, &str)> = names.into_iter().collect();
    let mut table = format!("| verdict | {what} |\n|---|---|\n");
    for verdict in ["carried with a difference", "refused", "refused protection"] {
        let names = names.iter().filter(|(_, word)| *word == verdict);
        let names: BTreeSet<String> = names.map(|(name, _)| format!("`{name}`")).collect();
        let names: Vec<String> = names.into_iter().collect();
        writeln!(table, "| {verdict} | {} |", names.join(", ")).expect("memory");
    }
    table
}

#[test]
fn verdicts_in_documentation_are_current() {
    let annotations = NginxAnnotation::ALL.iter().map(|annotation| {
        let (conversion, field) = converted(*annotation);
        let row = verdict(&conversion, "Ingress/shop/shop", &field);
        let word = row.map_or("no verdict", |row| row.verdict.word());
        (annotation.as_str().to_owned(), word)
    });
    let annotations = table("ingress-nginx: annotations", annotations);
    let mut fields = verdicts::<HttpProxySpec>("HTTPProxy", "shop");
    fields.extend(verdicts::<ExtensionServiceSpec>("ExtensionService", "auth"));
    let fields = table("Contour: fields", fields);
    let istio = super::istio::SOURCE.table("Istio: fields");
    let traefik = super::traefik::SOURCE.table("Traefik: fields");
    let tables = format!("{annotations}\n{fields}\n{istio}\n{traefik}");
    sesame_kit::generated::check_end(PAGE, START, &tables);
}
