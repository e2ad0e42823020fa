use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::core::v3::{Address, SocketAddress, address, socket_address};
use envoy_types::pb::envoy::config::listener::v3::Listener;
use proptest::prelude::*;
use prost::Message as _;

#[path = "plan_model.rs"]
mod model;

use self::model::{Files, config};
use super::*;
use sesame_render::layout::file_name;

fn resource(name: &str, content: &str) -> Resource {
    Resource {
        name: name.to_owned(),
        bytes: content.to_owned().into_bytes().into(),
    }
}

fn listener(name: &str, port: u32, content: &str) -> Resource {
    let message = Listener {
        name: name.to_owned(),
        address: Some(Address {
            address: Some(address::Address::SocketAddress(SocketAddress {
                address: "127.0.0.1".to_owned(),
                port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
                ..SocketAddress::default()
            })),
        }),
        stat_prefix: content.to_owned(),
        ..Listener::default()
    };
    Resource {
        name: name.to_owned(),
        bytes: message.encode_to_vec().into(),
    }
}

fn with(list: &[Resource], more: Resource) -> Arc<[Resource]> {
    list.iter().cloned().chain([more]).collect()
}

fn on_disk(content: Rendered) -> OnDisk {
    OnDisk {
        content,
        has_listeners: true,
        has_clusters: true,
        unconfirmed: BTreeSet::new(),
        unused: BTreeSet::new(),
    }
}

fn base() -> Rendered {
    Rendered {
        listeners: [listener("a:80", 80, "t1")].into(),
        route_tables: [resource("t1", "c1")].into(),
        clusters: [resource("c1", "e1"), resource("c2", "e2")].into(),
        endpoints: [resource("c1", "1"), resource("c2", "2")].into(),
        secrets: [resource("s1", "k")].into(),
        ..Rendered::default()
    }
}

fn text(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for step in &plan.steps {
        lines.extend(step.writes.iter().map(|write| {
            let names: Vec<&str> = write.resources.iter().map(|r| r.name.as_str()).collect();
            format!("{:?}: {}{names:?}", step.phase, write.subscription)
        }));
        lines.extend(
            step.removals
                .iter()
                .map(|s| format!("{:?}: -{s}", step.phase)),
        );
    }
    lines
}

#[test]
fn unchanged_target_writes_nothing() {
    assert!(
        plan(&on_disk(base()), &base(), Removal::AtOnce)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_route_change_is_one_rds_write() {
    let mut new = base();
    Arc::make_mut(&mut new.route_tables)[0] = resource("t1", "c2");
    assert_eq!(
        text(&plan(&on_disk(base()), &new, Removal::AtOnce).unwrap()),
        [r#"RouteTables: rds t1["t1"]"#]
    );
}

#[test]
fn an_endpoint_change_is_one_eds_write() {
    let mut new = base();
    Arc::make_mut(&mut new.endpoints)[1] = resource("c2", "3");
    assert_eq!(
        text(&plan(&on_disk(base()), &new, Removal::AtOnce).unwrap()),
        [r#"Leaves: eds c2["c2"]"#]
    );
}

#[test]
fn plan_moves_route_before_removing_old_backend() {
    let mut new = base();
    Arc::make_mut(&mut new.route_tables)[0] = resource("t1", "c3");
    Arc::make_mut(&mut new.clusters)[0] = resource("c3", "e3");
    Arc::make_mut(&mut new.endpoints)[0] = resource("c3", "3");
    assert_eq!(
        text(&plan(&on_disk(base()), &new, Removal::AtOnce).unwrap()),
        [
            r#"Leaves: eds c3["c3"]"#,
            r#"ClustersUnion: cds["c1", "c2", "c3"]"#,
            r#"RouteTables: rds t1["t1"]"#,
            r#"Clusters: cds["c2", "c3"]"#,
            r"Orphans: -eds c1",
        ]
    );
}

#[test]
fn union_contains_updated_form_of_cluster() {
    let mut new = base();
    new.clusters = [resource("c1", "other")].into();
    let plan = plan(&on_disk(base()), &new, Removal::AtOnce).unwrap();
    assert_eq!(
        plan.steps[0].writes[0].resources,
        [resource("c1", "other"), resource("c2", "e2")]
    );
}

#[test]
fn only_additions_write_each_list_once() {
    let mut new = base();
    new.clusters = with(&new.clusters, resource("c3", "e3"));
    new.listeners = with(&new.listeners, listener("a:81", 81, "t2"));
    new.route_tables = with(&new.route_tables, resource("t2", "c3"));
    assert_eq!(
        text(&plan(&on_disk(base()), &new, Removal::AtOnce).unwrap()),
        [
            r#"Leaves: rds t2["t2"]"#,
            r#"ClustersUnion: cds["c1", "c2", "c3"]"#,
            r#"ListenersUnion: lds["a:80", "a:81"]"#,
        ]
    );
}

#[test]
fn union_omits_listener_that_hands_over_its_address() {
    let mut new = base();
    new.listeners = [listener("b:80", 80, "t1"), listener("b:81", 81, "t1")].into();
    assert_eq!(
        text(&plan(&on_disk(base()), &new, Removal::AtOnce).unwrap()),
        [r#"ListenersUnion: lds["b:80", "b:81"]"#]
    );
    new.listeners = [listener("b:81", 81, "t1")].into();
    assert_eq!(
        text(&plan(&on_disk(base()), &new, Removal::AtOnce).unwrap()),
        [
            r#"ListenersUnion: lds["a:80", "b:81"]"#,
            r#"Listeners: lds["b:81"]"#
        ]
    );
}

#[test]
fn empty_lists_are_files_too() {
    let nothing = OnDisk::default();
    assert_eq!(
        text(&plan(&nothing, &Rendered::default(), Removal::AtOnce).unwrap()),
        ["ClustersUnion: cds[]", "ListenersUnion: lds[]"]
    );
}

#[test]
fn unconfirmed_resources_are_written_again() {
    let mut old = on_disk(base());
    old.unconfirmed = [
        Subscription::new(XdsKind::Listeners, ""),
        Subscription::new(XdsKind::RouteTable, "t1"),
    ]
    .into();
    assert_eq!(
        text(&plan(&old, &base(), Removal::AtOnce).unwrap()),
        [
            r#"ListenersUnion: lds["a:80"]"#,
            r#"RouteTables: rds t1["t1"]"#
        ]
    );
}

#[test]
fn plan_ignores_order_of_rendered_resources() {
    let mut new = base();
    Arc::make_mut(&mut new.clusters).reverse();
    assert!(
        plan(&on_disk(base()), &new, Removal::AtOnce)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_name_that_is_rendered_twice_is_refused() {
    let mut new = base();
    new.clusters = with(&new.clusters, resource("c2", "again"));
    assert_eq!(
        plan(&on_disk(base()), &new, Removal::AtOnce),
        Err(PlanError::Duplicate("cds c2".to_owned()))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn plan_keeps_references_valid_and_reaches_target(old in config(), new in config()) {
        let old_disk = on_disk(Files::of(&old).rendered());
        let mut files = Files::of(&old);
        prop_assert_eq!(files.check(), Ok(()));
        let plan = plan(&old_disk, &new, Removal::AtOnce).unwrap();
        for step in &plan.steps {
            for write in &step.writes {
                files.write(write);
                // Envoy may read the files of a step in any order.
                prop_assert_eq!(files.check(), Ok(()), "{:?} of {:?}", write, text(&plan));
            }
            for gone in &step.removals {
                files.leaves.remove(gone);
                prop_assert_eq!(files.check(), Ok(()), "-{:?} of {:?}", gone, text(&plan));
            }
        }
        let arrived = files.rendered();
        prop_assert_eq!(&arrived, &Files::of(&new).rendered());
        prop_assert!(super::plan(&on_disk(arrived), &new, Removal::AtOnce).unwrap().is_empty());
    }
}

fn with_file(name: &str) -> Resource {
    resource(name, &format!("eds {}", file_name(name)))
}

fn moved_to(name: &str) -> Rendered {
    Rendered {
        route_tables: [resource("t1", name)].into(),
        clusters: [with_file(name)].into(),
        endpoints: [resource(name, "1")].into(),
        ..base()
    }
}

#[test]
fn unused_clusters_go_with_next_cluster_write() {
    let first = on_disk(moved_to("c1"));
    let second = moved_to("c2");
    let there = plan(&first, &second, Removal::Later).unwrap();
    assert_eq!(
        text(&there),
        [
            r#"Leaves: eds c2["c2"]"#,
            r#"ClustersUnion: cds["c1", "c2"]"#,
            r#"RouteTables: rds t1["t1"]"#,
        ]
    );
    let disk = there.outcome(&second);
    assert_eq!(disk.unused, ["c1".to_owned()].into());
    assert!(disk.has_more_clusters_than(&second));
    let third = moved_to("c3");
    let on = plan(&disk, &third, Removal::Later).unwrap();
    assert_eq!(
        text(&on),
        [
            r#"Leaves: eds c3["c3"]"#,
            r#"ClustersUnion: cds["c2", "c3"]"#,
            r#"RouteTables: rds t1["t1"]"#,
            r"Orphans: -eds c1",
        ]
    );
    // Draining connections may still use any of these clusters.
    let held = plan(&disk, &third, Removal::Hold).unwrap();
    assert_eq!(
        text(&held),
        [
            r#"Leaves: eds c3["c3"]"#,
            r#"ClustersUnion: cds["c1", "c2", "c3"]"#,
            r#"RouteTables: rds t1["t1"]"#,
        ]
    );
    let both = ["c1".to_owned(), "c2".to_owned()].into();
    assert_eq!(held.outcome(&third).unused, both);
    let back = plan(&disk, &moved_to("c1"), Removal::Later).unwrap();
    assert_eq!(text(&back), [r#"RouteTables: rds t1["t1"]"#]);
    assert_eq!(
        back.outcome(&moved_to("c1")).unused,
        ["c2".to_owned()].into()
    );
    let clean = plan(&disk, &second, Removal::AtOnce).unwrap();
    assert_eq!(
        text(&clean),
        [r#"ClustersUnion: cds["c2"]"#, r"Orphans: -eds c1"]
    );
    assert_eq!(clean.outcome(&second), on_disk(second));
}

#[test]
fn many_unused_clusters_and_listener_keys_go_immediately() {
    let mut old = moved_to("c1");
    old.clusters = (0..40).map(|n| with_file(&format!("c{n:02}"))).collect();
    let many = plan(&on_disk(old), &moved_to("c1"), Removal::Later).unwrap();
    assert_eq!(many.steps.last().map(|it| it.phase), Some(Phase::Clusters));
    let mut new = moved_to("c2");
    new.secrets = Arc::default();
    let plan = plan(&on_disk(moved_to("c1")), &new, Removal::Later).unwrap();
    assert_eq!(
        text(&plan).last().map(String::as_str),
        Some("Orphans: -sds s1")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn delayed_removal_never_breaks_references(
        first in config(),
        changes in prop::collection::vec((config(), any::<bool>()), 1..6),
    ) {
        let mut files = Files::of(&first);
        let mut disk = on_disk(files.rendered());
        let last = changes.last().unwrap().0.clone();
        for (new, later) in changes.into_iter().chain([(last.clone(), false)]) {
            let removal = if later { Removal::Later } else { Removal::AtOnce };
            let plan = plan(&disk, &new, removal).unwrap();
            for step in &plan.steps {
                for write in &step.writes {
                    files.write(write);
                    prop_assert_eq!(files.check(), Ok(()), "{:?} of {:?}", write, text(&plan));
                }
                for gone in &step.removals {
                    files.leaves.remove(gone);
                    prop_assert_eq!(files.check(), Ok(()), "-{:?} of {:?}", gone, text(&plan));
                }
            }
            if !plan.is_empty() {
                disk = plan.outcome(&new);
            }
            prop_assert_eq!(&files.rendered(), &Files::of(&disk.content).rendered());
        }
        prop_assert_eq!(&files.rendered(), &Files::of(&last).rendered());
    }
}
