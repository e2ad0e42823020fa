//! RouteFilters that are invalid cost only the rules that refer to them.

use sesame_proto::schema::InjectedCredential;

use super::router::{GET, Request, answer};
use super::{ConditionState, HTTP, gateway, holds, resolved, route};
use crate::Resolution;
use sesame_kinds::status::{ConditionType, Reason};

const SECRETS: &str = "---
kind: Secret
metadata: {name: partner, namespace: web}
type: Opaque
stringData: {credential: \"Bearer hush\\n\", lines: \"hush\\nhush\", none: \"\"}
---
kind: Secret
metadata: {name: tls, namespace: web}
type: kubernetes.io/tls
stringData: {credential: hush}
---
kind: ConfigMap
metadata: {name: sets, namespace: web}
data: {text: text, empty: \"\"}
";

fn filtered(spec: &str) -> Resolution {
    let filter = "{type: ExtensionRef, extensionRef: {group: projectsesame.io, kind: RouteFilter, \
                  name: f}}";
    let rules = format!(
        "rules:\n- matches: [{{path: {{value: /a}}}}]\n  filters: [{filter}]\n  backendRefs: \
         [{{name: a, port: 80}}]\n- backendRefs: [{{name: a, port: 80}}]"
    );
    let spec =
        format!("---\nkind: RouteFilter\nmetadata: {{name: f, namespace: web}}\nspec: {spec}\n");
    resolved(&format!(
        "{}{}{spec}{SECRETS}",
        gateway(HTTP),
        route("r", &rules)
    ))
}

fn ask(resolution: &Resolution, path: &str) -> String {
    let request = Request {
        port: 80,
        host: "h.test",
        path,
        ..GET
    };
    answer(&resolution.gateways[0].snapshot, &request)
}

#[test]
fn invalid_filters_refuse_only_their_rule() {
    for (spec, why) in [
        ("{}", "spec.expected exactly one of"),
        (
            "{maintenance: {}, credentialInjection: {credential: {name: partner}}}",
            "spec.expected exactly one of",
        ),
        (
            "{directResponse: {statusCode: 199}}",
            "spec.directResponse.statusCode 199",
        ),
        (
            "{directResponse: {statusCode: 200, contentType: \"a\\nb\"}}",
            "spec.directResponse.contentType",
        ),
        (
            "{urlRewrite: {}}",
            "spec.urlRewrite.regex or urlRewrite.hostFromHeader is required",
        ),
        (
            "{urlRewrite: {hostFromHeader: a b}}",
            "spec.urlRewrite.hostFromHeader",
        ),
        (
            "{urlRewrite: {regex: {pattern: '^/(', substitution: /a}}}",
            "spec.urlRewrite.regex.pattern",
        ),
        (
            "{requestRedirect: {regex: {pattern: ^/a, substitution: b}}}",
            "spec.requestRedirect.regex.substitution",
        ),
        (
            "{requestRedirect: {regex: {pattern: ^/a, substitution: /b}, scheme: ftp}}",
            "scheme \"ftp\"",
        ),
        (
            "{requestRedirect: {regex: {pattern: ^/a, substitution: /b}, hostname: 'a b'}}",
            "hostname \"a b\"",
        ),
        (
            "{requestRedirect: {regex: {pattern: ^/a, substitution: /b}, port: 0}}",
            "port 0",
        ),
        (
            "{requestRedirect: {regex: {pattern: ^/a, substitution: /b}, statusCode: 300}}",
            "statusCode 300",
        ),
        (
            "{maintenance: {contentType: \"a\\nb\"}}",
            "spec.maintenance.contentType",
        ),
        (
            "{maintenance: {retryAfter: 1500ms}}",
            "spec.maintenance.retryAfter: expected whole seconds",
        ),
        (
            "{credentialInjection: {credential: {name: none}}}",
            "credential: Secret web/none does not exist",
        ),
        (
            "{credentialInjection: {credential: {name: tls}}}",
            "credential: Secret web/tls has type",
        ),
        (
            "{credentialInjection: {credential: {name: partner, key: other}}}",
            "Secret web/partner has no \"other\"",
        ),
        (
            "{credentialInjection: {credential: {name: partner, key: lines}}}",
            "\"lines\" is not a header value",
        ),
        (
            "{credentialInjection: {credential: {name: partner, key: none}}}",
            "\"none\" is not a header value",
        ),
        (
            "{credentialInjection: {header: Host, credential: {name: partner}}}",
            "credentialInjection.header \"Host\"",
        ),
        (
            "{maintenance: {exceptClients: [192.0.2.1]}}",
            "maintenance.exceptClients[0]",
        ),
        (
            "{grpcJSONTranscoding: {descriptorSet: {name: none}, services: [a.S]}}",
            "descriptorSet: ConfigMap web/none does not exist",
        ),
        (
            "{grpcJSONTranscoding: {descriptorSet: {name: sets}, services: [a.S]}}",
            "ConfigMap web/sets has no \"descriptors.pb\"",
        ),
        (
            "{grpcJSONTranscoding: {descriptorSet: {name: sets, key: text}, services: [a.S]}}",
            "\"text\" is not a complete FileDescriptorSet",
        ),
        (
            "{grpcJSONTranscoding: {descriptorSet: {name: sets, key: empty}, services: [a.S]}}",
            "does not define the service \"a.S\"",
        ),
        (
            "{grpcJSONTranscoding: {descriptorSet: {name: sets, key: empty}, services: []}}",
            "grpcJSONTranscoding.services",
        ),
        (
            "{grpcJSONTranscoding: {descriptorSet: {name: sets, key: empty}, services: [\"\"]}}",
            "grpcJSONTranscoding.services[0] is empty",
        ),
        (
            "{grpcJSONTranscoding: {descriptorSet: {name: sets, key: empty}, services: [a.S], \
             ignoredQueryParameters: [\"\"]}}",
            "grpcJSONTranscoding.ignoredQueryParameters[0] is empty",
        ),
        (
            "{credentialInjection: {header: User-Agent, credential: {name: partner}}}",
            "credentialInjection.header \"User-Agent\" is logged",
        ),
    ] {
        let resolution = filtered(spec);
        assert_eq!(ask(&resolution, "/a"), "500", "{spec}");
        assert_eq!(ask(&resolution, "/"), "web/a/80", "{spec}");
        let conditions = resolution.route_conditions("r");
        let resolved = holds(conditions, ConditionType::ResolvedRefs);
        assert_eq!(
            resolved,
            ConditionState::False(Reason::InvalidKind),
            "{spec}"
        );
        let messages: Vec<&str> = conditions.iter().map(|it| &*it.message).collect();
        let message = messages.join("; ");
        assert!(message.contains(why), "{message}");
        assert!(!message.contains("hush"), "{message}");
        assert_eq!(resolution.gateways[0].keys, []);
    }
}

#[test]
fn credential_travels_as_key_pair_of_its_gateway() {
    let spec = "{credentialInjection: {header: X-Key, credential: {name: partner}}}";
    let resolution = filtered(spec);
    assert_eq!(ask(&resolution, "/a"), "web/a/80");
    let gateway = &resolution.gateways[0];
    let [pair] = gateway.keys.as_slice() else {
        panic!("{:?}", gateway.keys);
    };
    assert_eq!(pair.name, InjectedCredential::name("RouteFilter/web/f"));
    assert_eq!(pair.private_key, b"Bearer hush");
    assert_eq!(gateway.snapshot.keys[0].digest, pair.digest());
    let snapshot = format!("{:?}", gateway.snapshot);
    assert!(!snapshot.contains("hush") && snapshot.contains("x-key"));
}

#[test]
fn maintenance_answers_in_place_of_backends() {
    let resolution = filtered("{maintenance: {retryAfter: 1m, body: later}}");
    assert_eq!(ask(&resolution, "/a"), "503");
    let hosts = &resolution.gateways[0].snapshot.route_tables[0].virtual_hosts;
    let headers = hosts[0].routes[0].response_headers.as_deref();
    let retry = headers.and_then(|it| it.set.first());
    let retry = retry.map(|it| (&*it.name, &*it.value));
    assert_eq!(retry, Some(("retry-after", "60")));
}
