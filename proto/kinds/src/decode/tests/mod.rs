mod nulls;
mod wrong_values;

use proptest::prelude::*;

use super::*;

const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: web
  namespace: shop # where it lives
  creationTimestamp: null
  annotations:
spec:
  parentRefs:
  - name: edge
  hostnames: [\"shop.example\"]
  rules:
  - matches:
    - path: {type: PathPrefix, value: /}
    backendRefs:
    - name: web
      port: 8080
";

fn one(text: &str) -> Result<Decoded, DecodeError> {
    let mut all = decode(text, &DecodeLimits::default());
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn message(text: &str) -> String {
    one(text).expect_err("must not decode").to_string()
}

fn named(name: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name:?}\n  namespace: {namespace:?}\n"
    )
}

#[test]
fn a_route_decodes_with_its_key() {
    let decoded = one(ROUTE).expect("decodes");
    assert_eq!(decoded.object.key().to_string(), "HTTPRoute/shop/web");
    assert!(
        decoded.unknown_fields.is_empty(),
        "{:?}",
        decoded.unknown_fields
    );
    let AnyObject::HttpRoute(route) = decoded.object else {
        panic!("not a route")
    };
    assert_eq!(route.spec.rules[0].backend_refs[0].port, Some(8080));
}

#[test]
fn line_endings_bom_and_json_decode_alike() {
    let expected = one(ROUTE).expect("decodes");
    let crlf = ROUTE.replace('\n', "\r\n");
    assert_eq!(one(&crlf).expect("CRLF"), expected);
    assert_eq!(one(&format!("\u{feff}{ROUTE}")).expect("BOM"), expected);
    let value: serde_json::Value = serde_saphyr::from_str(ROUTE).expect("YAML");
    let json = serde_json::to_string_pretty(&value).expect("JSON");
    assert_eq!(one(&json).expect("JSON"), expected);
    assert_eq!(
        one(&json.replace("  ", "\t")).expect("JSON with tabs"),
        expected
    );
}

#[test]
fn namespace_is_defaulted_or_cleared_by_scope() {
    let object = one(&named("a", "")).expect("decodes").object;
    assert_eq!(object.metadata().namespace, "default");
    let class = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\n\
                 metadata: {name: a, namespace: b}\nspec: {controllerName: example.com/c}\n";
    assert_eq!(one(class).expect("decodes").object.metadata().namespace, "");
}

#[test]
fn unknown_fields_are_named_by_path() {
    let text = ROUTE.replace(
        "      port: 8080",
        "      port: 8080\n      zone: b\n    retries: 3",
    ) + "  extra: 1\nstatus: {parents: []}\nother: x\n";
    let decoded = one(&text).expect("decodes");
    let mut unknown: Vec<String> = decoded
        .unknown_fields
        .iter()
        .map(|(line, field)| format!("{line}: {field}"))
        .collect();
    unknown.sort();
    assert_eq!(
        unknown,
        [
            "18: `spec.rules[0].backendRefs[0].zone`",
            "19: `spec.rules[0].retries`",
            "20: `spec.extra`",
            "22: `other`"
        ]
    );
}

#[test]
fn core_kinds_are_read_in_part_without_warnings() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n\
                spec: {clusterIP: None, selector: {app: a}, ports: [{port: 80, targetPort: web}]}\n";
    assert!(one(text).expect("decodes").unknown_fields.is_empty());
}

#[test]
fn api_server_rejections_are_reported_with_line() {
    for (from, to, line, says) in [
        (
            "port: 8080",
            "port: eighty",
            17,
            "\"eighty\" is not an integer from 1 to 65535",
        ),
        ("port: 8080", "port: 8080\n      port: 81", 18, "duplicate"),
        ("- name: edge", "- namespace: edge", 10, "name"),
        ("value: /}", "value: true}", 14, "quotes"),
        ("  rules:", "\trules:", 12, "tabs"),
        ("hostnames: [", "hostnames: [[", 12, ""),
        ("spec:", "spec: *none\nrest:", 8, ""),
    ] {
        let text = ROUTE.replacen(from, to, 1);
        assert_ne!(text, ROUTE);
        let error = one(&text).expect_err(to);
        assert!(
            (error.line..=error.line + 1).contains(&line),
            "{to}: {error}"
        );
        assert!(error.to_string().contains(says), "{to}: {error}");
        assert_eq!(
            error.object.map(|key| key.to_string()).as_deref(),
            Some("HTTPRoute/shop/web")
        );
    }
    assert!(message(&ROUTE.replace("  name: web\n", "")).contains("`metadata.name` is missing"));
    let (head, _) = ROUTE.split_once("spec:").expect("has a spec");
    assert!(message(head).contains("`spec` is missing"));
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: a}\n\
                   spec: {gatewayClassName: c, listeners: [{name: x, protocol: HTTP}]}\n";
    assert!(message(gateway).contains("port"), "{}", message(gateway));
    assert!(message("metadata: {name: a}\n").contains("`kind` is missing"));
    assert!(message("just words").contains("mapping"));
}

#[test]
fn names_are_checked() {
    let longest = format!("{}.{}", "a".repeat(200), "b".repeat(52));
    assert_eq!(longest.len(), 253);
    for good in ["a", "a.b-c.d0", "0", longest.as_str()] {
        one(&named(good, "ns")).expect(good);
    }
    let too_long = "a".repeat(254);
    for bad in [
        "A", "a/b", "../a", "a..b", ".a", "a.", "-a", "a-", "a_b", "ä", "a b", "a\u{0}", &too_long,
    ] {
        let error = message(&named(bad, "ns"));
        assert!(error.contains("metadata.name: "), "{bad}: {error}");
    }
    for bad in ["a.b", "a/b", "A", &"a".repeat(64)] {
        let error = message(&named("a", bad));
        assert!(error.contains("metadata.namespace: "), "{bad}: {error}");
    }
    let listener = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: a}\n\
                    spec: {gatewayClassName: c, listeners: [{name: 'a/b', port: 1, protocol: HTTP}]}\n";
    assert!(message(listener).contains("spec.listeners[0].name: \"a/b\""));
}

#[test]
fn unsupported_kind_is_distinguished_from_fault() {
    let error =
        one("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n").expect_err("ignored");
    assert!(error.is_unsupported());
    let old = ROUTE.replace("/v1", "/v1alpha2");
    let error = one(&old).expect_err("ignored");
    assert!(error.is_unsupported());
    assert!(
        error
            .to_string()
            .contains("expected gateway.networking.k8s.io/v1 or"),
        "{error}"
    );
    assert!(
        !one(&ROUTE.replace("rules:", "rules: ["))
            .expect_err("broken")
            .is_unsupported()
    );
}

#[test]
fn items_of_a_list_succeed_and_fail_alone() {
    let text = "apiVersion: v1\nkind: List\nitems:\n\
        - apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n\
        - apiVersion: v1\n  kind: Namespace\n  metadata: {name: A}\n\
        - kind: Namespace\n\
        - apiVersion: v1\n  kind: List\n  items: []\n\
        - apiVersion: v1\n  kind: Namespace\n  metadata: {name: b}\n";
    let all = decode(text, &DecodeLimits::default());
    let names: Vec<_> = all
        .iter()
        .map(|item| match item {
            Ok(decoded) => format!("{}:{}", decoded.line, decoded.object.key()),
            Err(error) => format!("{}!", error.line),
        })
        .collect();
    assert_eq!(
        names,
        ["4:Namespace/a", "9!", "10!", "11!", "14:Namespace/b"]
    );
    let typed = "apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n";
    assert_eq!(
        one(typed).expect("decodes").object.key().to_string(),
        "Namespace/a"
    );
    let nodes = "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: a}\n";
    assert!(one(nodes).expect_err("ignored").is_unsupported());
}

#[test]
fn errors_never_quote_a_secret() {
    const VALUE: &str = "aHVudGVyMg";
    let secret = |body: &str| format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n{body}");
    let list = |item: &str| format!("apiVersion: v1\nkind: List\nitems:\n- {item}\n");
    for text in [
        secret(&format!("data:\n  password: [{VALUE}]\n")),
        secret(&format!("data:\n  password: {VALUE}!\n")),
        secret(&format!("data:\n  password: '{VALUE}\n")),
        secret(&format!("data: {VALUE}\n")),
        secret(&format!("data:\n  {VALUE}: a\n  {VALUE}: b\n")),
        secret(&format!("data:\n password: *{VALUE}\n")),
        secret(&format!("data:\n  password: !{VALUE}{{}} {VALUE}\n")),
        secret(&format!("type: {{{VALUE}: {VALUE}}}\n")),
        format!(
            "apiVersion: v1\nx: {{\nkind: ConfigMap\n}}\nkind: Secret\n{VALUE}: 1\n{VALUE}: 2\n"
        ),
        format!("{{apiVersion: v1, kind: Secret, data: {{a: {VALUE}: {VALUE}}}}}"),
        list(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: a}}, data: {{a: [{VALUE}]}}}}"
        )),
        list(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: a}}, data: {VALUE}}}"
        )),
        list(&format!(
            "{{apiVersion: v1, kind: Secret, data: {{{VALUE}: 1, {VALUE}: 1}}}}"
        )),
    ] {
        let errors: Vec<_> = decode(&text, &DecodeLimits::default())
            .into_iter()
            .collect();
        assert!(errors.iter().all(Result::is_err), "{text}");
        assert!(!format!("{errors:?}").contains(VALUE), "{text}\n{errors:?}");
        assert!(!message(&text).contains(VALUE), "{text}");
    }
    let number = secret("stringData:\n  pin: 73914\n");
    assert!(!message(&number).contains("73914"));
    let good = one(&secret(&format!("stringData:\n  password: {VALUE}\n"))).expect("decodes");
    assert!(!format!("{good:?}").contains(VALUE));
}

#[test]
fn key_lookalike_at_margin_is_not_trusted() {
    let text = "apiVersion: v1\nmetadata: {\nkind: Secret\n, name: a}\nkind: ConfigMap\n";
    assert!(
        decode(text, &DecodeLimits::default())
            .iter()
            .all(Result::is_err)
    );
}

#[test]
fn bombs_are_refused() {
    let mut laughs =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\na: &a [x,x,x,x,x,x,x,x,x]\n"
            .to_owned();
    for (of, next) in ('a'..'i').zip('b'..='i') {
        let nine = vec![format!("*{of}"); 9].join(",");
        laughs.extend([
            &format!("{next}: &{next} "),
            "[",
            &nine,
            "]
",
        ]);
    }
    message(&laughs);
    message(&format!("{}x: {}", named("a", "b"), "[".repeat(100_000)));
    message(&format!(
        "{}x: {}1{}",
        named("a", "b"),
        "{a: ".repeat(60),
        "}".repeat(60)
    ));
    let nested: String = (0..60)
        .flat_map(|depth| {
            [
                " ".repeat(depth),
                "a:
"
                .to_owned(),
            ]
        })
        .collect();
    message(&format!("{}{nested}", named("a", "b")));
    let large = format!("{}data: {{a: {}}}\n", named("a", "b"), "x".repeat(1 << 20));
    assert!(
        message(&large).contains("maximum 1048576"),
        "{}",
        message(&large)
    );
}

#[test]
fn a_file_is_cut_at_its_markers() {
    let text = "# only a comment\n---\na: 1\n--- # next\nb: |\n  text\n   --- not a marker\n--- {c: 1}\n...\n\
                %YAML 1.2\n---\n\n---not: a marker\r\n---\r\nd: 1";
    let documents = split(text);
    let lines: Vec<_> = documents.iter().map(|document| document.line).collect();
    assert_eq!(lines, [2, 4, 8, 11, 14]);
    assert_eq!(documents[0].text, "\na: 1\n");
    assert_eq!(documents[2].text, " {c: 1}\n");
    assert_eq!(documents[4].text, "\r\nd: 1");
    assert!(split("").is_empty() && split("\n# x\n---\n---\n").is_empty());
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        for document in split(&text) {
            decode(document.text, &DecodeLimits::default());
        }
    }

    #[test]
    fn mutated_document_never_panics_and_keeps_lines(
        cuts in proptest::collection::vec((0..ROUTE.len(), 0..12usize, "[\\x00-\\x7f]{0,6}"), 1..6),
    ) {
        let mut text = ROUTE.to_owned();
        for (at, length, insert) in cuts {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            text.replace_range(at..end, &insert);
        }
        for document in split(&text) {
            for error in decode(document.text, &DecodeLimits::default()).into_iter().filter_map(Result::err) {
                // A single CR also ends a line in YAML.
                let lines = document.text.lines().count() + document.text.matches('\r').count();
                prop_assert!(error.line >= 1 && error.line <= lines + 1);
            }
        }
    }

    #[test]
    fn a_mutated_secret_is_never_quoted(
        cuts in proptest::collection::vec((0..90usize, 0..8usize, "[-:{}\\[\\]'\"!&*#|>\n ,a]{0,4}"), 1..5),
    ) {
        const VALUE: &str = "S3cr3tV4lu3";
        let mut text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData:\n  password: {VALUE}\n");
        for (at, length, insert) in cuts {
            // Keep the kind so the broken document is still a Secret.
            let at = at.clamp(28, text.len());
            let end = (at + length).min(text.len());
            text.replace_range(at..end, &insert);
        }
        for document in split(&text) {
            let output = format!("{:?}", decode(document.text, &DecodeLimits::default()));
            prop_assert!(!output.contains(VALUE), "{}", output);
        }
    }
}

#[test]
fn lists_have_no_room_to_spare() {
    // Clusters have many objects with short lists, so spare capacity would waste memory.
    let AnyObject::HttpRoute(route) = one(ROUTE).expect("decodes").object else {
        panic!("not a route")
    };
    let spec = &route.spec;
    assert_eq!(spec.hostnames.capacity(), 1);
    assert_eq!(spec.rules.capacity(), 1);
    assert_eq!(spec.rules[0].backend_refs.capacity(), 1);
}
