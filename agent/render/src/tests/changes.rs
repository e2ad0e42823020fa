//! Incremental rendering gives the same result as full rendering.

use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::{
    Backend, Endpoint, EndpointSet, ExternalAuth, RouteTable, Snapshot, VirtualHost,
};

use super::everything::everything;
use super::parts::options;
use crate::{RenderOptions, backends_after, endpoints_after, render, routes_after};

fn everything_valid() -> (Snapshot, Vec<KeyPair>) {
    let (mut snapshot, keys) = everything();
    let found = render(&snapshot, &keys, &options()).problems;
    let wrong = |name: &str| found.iter().any(|problem| problem.object == name);
    snapshot.backends.retain(|backend| !wrong(&backend.name));
    snapshot.endpoints.retain(|set| !wrong(&set.name));
    for host in snapshot
        .route_tables
        .iter_mut()
        .flat_map(|table| &mut table.virtual_hosts)
    {
        host.routes.retain(|route| !wrong(&route.name));
    }
    (snapshot, keys)
}

fn encoded(snapshot: &Snapshot, keys: &[KeyPair]) -> EncodedSnapshot {
    EncodedSnapshot::new(snapshot, keys.to_vec())
}

/// The flag is true if incremental rendering supports the change.
type SnapshotChange = (bool, fn(&mut Snapshot));

type AnyChange<'a> = &'a dyn Fn(&mut Snapshot);

type TableChange = (bool, fn(&mut RouteTable));

#[test]
fn reused_virtual_hosts_match_full_rendering() {
    let (mut old, keys) = everything_valid();
    let table = &mut old.route_tables[0];
    for index in 0..200 {
        let mut host = table.virtual_hosts[0].clone();
        host.domain = format!("more{index:03}.example.com");
        table.virtual_hosts.push(host);
    }
    let wide = RenderOptions {
        subscription_budget: 1000,
        ..options()
    };
    let before = render(&old, &keys, &wide);
    assert!(before.problems.is_empty(), "{:?}", before.problems);
    assert!(!before.route_tables.is_empty());
    let changes: [TableChange; 7] = [
        (true, |table| {
            table.virtual_hosts.remove(0);
        }),
        (true, |table| {
            let host = VirtualHost {
                domain: "another.example.com".to_owned(),
                ..table.virtual_hosts[0].clone()
            };
            table.virtual_hosts.insert(3, host);
        }),
        (true, |table| table.virtual_hosts[1].routes.clear()),
        (true, |table| table.virtual_hosts.swap(5, 50)),
        (false, |table| {
            table.virtual_hosts[9].domain = "a*b*".to_owned();
        }),
        (false, |table| {
            let again = table.virtual_hosts[7].clone();
            table.virtual_hosts.push(again);
        }),
        (false, |table| table.name = "another".to_owned()),
    ];
    for (reused, change) in changes {
        let mut new = old.clone();
        change(&mut new.route_tables[0]);
        let (previous, now) = (encoded(&old, &keys), encoded(&new, &keys));
        let unchanged = now.unchanged_since(&previous);
        assert!(unchanged.endpoints && unchanged.rest && !unchanged.route_tables);
        let after = routes_after(&before, &previous, &now, &wide);
        assert_eq!(after.is_some(), reused);
        assert!(after.is_none_or(|after| after == render(&new, &keys, &wide)));
    }
    // Inlined tables are part of their listeners, so they cannot be reused.
    let narrow = RenderOptions {
        subscription_budget: 0,
        ..wide
    };
    let before = render(&old, &keys, &narrow);
    let previous = encoded(&old, &keys);
    old.route_tables[0].virtual_hosts.truncate(1);
    assert!(routes_after(&before, &previous, &encoded(&old, &keys), &narrow).is_none());
}

#[test]
fn reused_parts_match_full_rendering_after_endpoint_changes() {
    // Use a snapshot without problems, because any problem prevents reuse.
    let (mut old, keys) = everything_valid();
    let some = old
        .endpoints
        .iter()
        .position(|set| !set.endpoints.is_empty());
    old.endpoints.swap(0, some.unwrap());
    let mut chained = 0;
    let changes: [SnapshotChange; 4] = [
        (true, |new| new.endpoints[0].endpoints.clear()),
        (true, |new| {
            for set in &mut new.endpoints {
                set.endpoints.push(Endpoint {
                    address: "192.0.2.99".to_owned(),
                    port: 99,
                    ..Endpoint::default()
                });
            }
        }),
        (false, |new| new.endpoints.truncate(1)),
        (true, |new| {
            new.endpoints[0].endpoints[0].address = "not an IP".to_owned();
        }),
    ];
    for budget in [0, options().subscription_budget, 1000] {
        let options = RenderOptions {
            subscription_budget: budget,
            ..options()
        };
        let before = render(&old, &keys, &options);
        for (reused, change) in changes {
            let mut new = old.clone();
            change(&mut new);
            let whole = render(&new, &keys, &options);
            let previous = encoded(&old, &keys);
            let endpoints = |now: &EncodedSnapshot| {
                let (sets, backends) = now.replaced_endpoints(&previous)?;
                endpoints_after(&before, &sets, &backends, &options)
            };
            let after = endpoints(&encoded(&new, &keys));
            let clean = before.problems.is_empty() && whole.problems.is_empty();
            assert_eq!(after.is_some(), clean && reused, "{:?}", before.problems);
            assert!(after.is_none_or(|after| after == whole));
            let mut both = new.clone();
            both.route_tables[0].virtual_hosts[0].routes.clear();
            let encoded = encoded(&both, &keys);
            let after = endpoints(&encoded)
                .and_then(|after| routes_after(&after, &previous, &encoded, &options));
            chained += usize::from(after.is_some());
            assert!(after.is_none_or(|after| after == render(&both, &keys, &options)));
        }
        assert!(before.problems.is_empty(), "{:?}", before.problems);
    }
    assert!(
        chained > 0,
        "combined route and endpoint changes must be rendered incrementally"
    );
}

#[test]
fn reused_parts_match_full_rendering_after_backend_changes() {
    let (mut old, keys) = everything_valid();
    let backend = |name: &str| Backend {
        name: name.to_owned(),
        endpoints: name.to_owned(),
        ..Backend::default()
    };
    let set = |name: &str| EndpointSet {
        name: name.to_owned(),
        endpoints: vec![Endpoint {
            address: "192.0.2.99".to_owned(),
            port: 99,
            ..Endpoint::default()
        }],
        ..EndpointSet::default()
    };
    let (lone, new_one) = ("Service/ns/lone/80", "Service/ns/new/80");
    old.backends.push(backend(lone));
    old.endpoints.push(set(lone));
    let used = old.backends[0].name.clone();
    let add = |new: &mut Snapshot| {
        new.backends.push(backend(new_one));
        new.endpoints.push(set(new_one));
    };
    let remove = |new: &mut Snapshot, name: &str| {
        new.backends.retain(|backend| backend.name != name);
    };
    let change_host = |new: &mut Snapshot| {
        let host = &mut new.route_tables[0].virtual_hosts[0];
        host.routes.truncate(1);
    };
    let changes: [(bool, AnyChange<'_>); 7] = [
        (true, &add),
        (true, &|new| remove(new, lone)),
        (true, &|new| {
            add(new);
            remove(new, lone);
            change_host(new);
        }),
        // Routes do not depend on a backend's protocol.
        (true, &|new| {
            let last = new.backends.last_mut().unwrap();
            last.set_protocol(sesame_proto::schema::AppProtocol::Http2);
        }),
        // Without this backend, unchanged routes would be rendered differently.
        (false, &|new| remove(new, &used)),
        (false, &|new| {
            for name in 0..20 {
                new.backends
                    .push(backend(&format!("Service/ns/new{name:02}/80")));
            }
        }),
        (false, &|new| {
            let host = &mut new.route_tables[0].virtual_hosts[0];
            host.external_auth.push(ExternalAuth::default());
            add(new);
        }),
    ];
    sesame_proto::digest::canonicalize(&mut old);
    let mut reused = 0;
    for budget in [100, 1000] {
        let options = RenderOptions {
            subscription_budget: budget,
            ..options()
        };
        for (expected, change) in &changes {
            let mut new = old.clone();
            change(&mut new);
            sesame_proto::digest::canonicalize(&mut new);
            let before = render(&old, &keys, &options);
            assert!(before.problems.is_empty(), "{:?}", before.problems);
            let (previous, now) = (encoded(&old, &keys), encoded(&new, &keys));
            let after = backends_after(&before, &previous, &now, &options);
            assert_eq!(after.is_some(), *expected);
            reused += usize::from(after.is_some());
            assert!(after.is_none_or(|after| after == render(&new, &keys, &options)));
        }
    }
    assert_eq!(reused, 8);
}
