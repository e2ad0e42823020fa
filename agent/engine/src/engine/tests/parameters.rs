use super::*;

#[test]
fn gateway_with_bad_parameters_is_served_unchanged() {
    const CLASS: &str = "parameters.yaml";
    let mut fixture = Fixture::new(Vec::new());
    let root = fixture.dir.path().join("manifests");
    let apply = |fixture: &mut Fixture, file: &str, text: &str| {
        fs::write(root.join(file), text).expect("written");
        let scan = fixture.engine.manifests.scan();
        let change = Change::Paths(Vec::new());
        fixture
            .engine
            .apply_scan(&scan, &change, Timestamp::UNIX_EPOCH);
        fixture.engine.known.borrow().gateways.clone()
    };
    let before = fixture.engine.known.borrow().gateways.clone();
    assert!(!before.is_empty());
    let class = GATEWAYS.replacen(
        "controllerName:",
        "parametersRef: {group: projectsesame.io, kind: SesameConfiguration, namespace: ns, name: template}, controllerName:",
        1,
    );
    let kept = apply(&mut fixture, "gateways.yaml", &class);
    assert!(kept.keys().eq(before.keys()), "{kept:?}");
    let text = |inside: u16| {
        format!(
            "apiVersion: projectsesame.io/v1alpha1\nkind: SesameConfiguration\nmetadata: {{name: template, namespace: ns}}\n\
             spec: {{ports: {{map: [{{outside: 80, inside: {inside}}}]}}}}\n"
        )
    };
    let opened = |gateways: &Targets| {
        let ports = gateways
            .values()
            .flat_map(|target| target.encoded.ports().clone());
        ports
            .filter(|((_, port), _)| *port == 80)
            .map(|(_, inside)| inside)
            .next()
    };
    let mapped = apply(&mut fixture, CLASS, &text(8080));
    assert_eq!(opened(&mapped), Some(8080));
    let wrong = apply(&mut fixture, CLASS, &text(0));
    assert_eq!(opened(&wrong), Some(8080));
    assert_eq!(opened(&apply(&mut fixture, CLASS, &text(9090))), Some(9090));
}
