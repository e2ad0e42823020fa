use std::collections::BTreeMap;
use std::path::PathBuf;

use sesame_proto::schema::Transport;

use crate::doctor::facts::{
    AgentFacts, ClockFacts, ClusterFacts, DiskFacts, EnvoyFacts, HostFacts, InotifyFacts,
    PathFacts, PortFacts, UnitFacts,
};
use crate::doctor::{FindingSeverity, HostFinding, findings};
use sesame_host::reserve::MAX_HELD;

fn good() -> HostFacts {
    HostFacts {
        settings: (Some("/etc/sesame/agent.yaml".into()), Vec::new()),
        agent: AgentFacts {
            pid: Some(7),
            ..AgentFacts::default()
        },
        inotify: InotifyFacts {
            instances: 8192,
            each: 4000,
            used: 6,
            held: Some(8),
            wanted: 20,
            watches: 1_048_576,
        },
        ports: vec![PortFacts {
            gateway: "default/edge".to_owned(),
            transport: Transport::Tcp,
            address: [0, 0, 0, 0].into(),
            port: 80,
            owner: Some((9, "envoy".to_owned())),
            own: true,
            bindable: false,
        }],
        first_free_port: 1024,
        binds_low: true,
        memory: 1 << 30,
        heap: None,
        tasks: Some((512, 20)),
        cores: 2,
        open_files: 1_048_576,
        clock: ClockFacts {
            now: "2026-11-22T21:00:00Z".parse().unwrap(),
            synchronized: Some(true),
            last_accepted: None,
        },
        disks: vec![DiskFacts {
            option: "runtime-dir",
            path: "/run/sesame".into(),
            free: 1 << 30,
            inodes: Some(10_000),
            in_memory: true,
        }],
        missing: Vec::new(),
        misplaced: Vec::new(),
        envoy: Ok(EnvoyFacts {
            path: "/usr/lib/sesame/envoy".into(),
            version: "1.40.0".to_owned(),
            hot_restart: Ok("11.104".to_owned()),
            shared_memory: Ok(()),
        }),
        migrates: Some(true),
        steering: Ok(()),
        unprivileged_owner: None,
        cluster: Some(ClusterFacts {
            version: "v1.36.3".to_owned(),
            ..ClusterFacts::default()
        }),
        certificates: Vec::new(),
        certificate_count: 3,
        confinement: None,
        units: Some(vec![UnitFacts {
            name: "sesame-agent.service".to_owned(),
            file_state: "enabled".to_owned(),
            active_state: "active".to_owned(),
        }]),
    }
}

fn wrong(facts: &HostFacts) -> BTreeMap<&'static str, HostFinding> {
    let found = findings(facts).into_iter();
    found
        .filter(|finding| finding.severity > FindingSeverity::Ok)
        .map(|finding| (finding.check, finding))
        .collect()
}

#[test]
fn healthy_host_has_no_findings() {
    assert_eq!(wrong(&good()), BTreeMap::new());
}

type Case = (
    fn(&mut HostFacts),
    &'static str,
    FindingSeverity,
    &'static str,
);

#[test]
fn each_fault_is_found_by_exactly_one_check() {
    let cases: [Case; 25] = [
        (
            |f| f.settings.1.push("line 3".to_owned()),
            "settings",
            FindingSeverity::Error,
            "line 3",
        ),
        (
            |f| f.agent.pid = None,
            "agent",
            FindingSeverity::Note,
            "no agent runs",
        ),
        (
            |f| f.agent.silent = Some("hangs".to_owned()),
            "agent",
            FindingSeverity::Error,
            "hangs",
        ),
        (
            |f| f.agent.reasons.push("Gateway down".to_owned()),
            "agent",
            FindingSeverity::Error,
            "Gateway down",
        ),
        (
            |f| f.inotify.each = 1,
            "inotify-instances",
            FindingSeverity::Error,
            "1 files",
        ),
        (
            |f| f.inotify.wanted = 5000,
            "inotify-instances",
            FindingSeverity::Warning,
            "5000",
        ),
        (
            |f| f.inotify.held = Some(5),
            "inotify-instances",
            FindingSeverity::Warning,
            "has reserved 5",
        ),
        (
            |f| f.inotify.watches = 100,
            "inotify-watches",
            FindingSeverity::Warning,
            "100",
        ),
        (
            |f| f.ports[0].own = false,
            "ports",
            FindingSeverity::Error,
            "process 9 (envoy)",
        ),
        (
            |f| {
                f.ports[0].own = false;
                f.ports[0].owner = None;
            },
            "ports",
            FindingSeverity::Error,
            "cannot be bound",
        ),
        (
            |f| f.binds_low = false,
            "low-ports",
            FindingSeverity::Error,
            "port 80",
        ),
        (
            |f| f.heap = Some(2 << 30),
            "memory",
            FindingSeverity::Error,
            "2048 MiB",
        ),
        (
            |f| f.tasks = Some((30, 20)),
            "tasks",
            FindingSeverity::Error,
            "20 of 30",
        ),
        (
            |f| f.open_files = 20_000,
            "open-files",
            FindingSeverity::Warning,
            "20000",
        ),
        (
            |f| f.open_files = 10,
            "open-files",
            FindingSeverity::Error,
            "10",
        ),
        (
            |f| f.clock.synchronized = Some(false),
            "clock",
            FindingSeverity::Warning,
            "not synchronised",
        ),
        (
            |f| f.clock.last_accepted = Some("2027-01-01T00:00:00Z".parse().unwrap()),
            "clock",
            FindingSeverity::Error,
            "2027",
        ),
        (
            |f| f.disks[0].free = 1 << 20,
            "disk",
            FindingSeverity::Error,
            "1 MiB",
        ),
        (
            |f| f.disks[0].inodes = Some(3),
            "disk",
            FindingSeverity::Error,
            "3 inodes",
        ),
        (
            |f| f.disks[0].in_memory = false,
            "runtime-tmpfs",
            FindingSeverity::Warning,
            "on a disk",
        ),
        (
            |f| f.envoy = Err("no Envoy".to_owned()),
            "envoy",
            FindingSeverity::Error,
            "no Envoy",
        ),
        (
            |f| f.migrates = Some(false),
            "tcp-migrate-req",
            FindingSeverity::Warning,
            "is 0",
        ),
        (
            |f| f.steering = Err("denied".to_owned()),
            "port-steering",
            FindingSeverity::Warning,
            "denied",
        ),
        (
            |f| f.certificates.push((true, "expired".to_owned())),
            "certificates",
            FindingSeverity::Error,
            "expired",
        ),
        (
            |f| {
                f.cluster
                    .as_mut()
                    .unwrap()
                    .denied
                    .push("list configmaps".to_owned());
            },
            "cluster-rights",
            FindingSeverity::Error,
            "list configmaps",
        ),
    ];
    for (change, check, weight, words) in cases {
        let mut facts = good();
        change(&mut facts);
        let mut wrong = wrong(&facts);
        // Without Envoy, the hot restart check fails as well.
        if check == "envoy" {
            wrong.remove("hot-restart");
        }
        let found = wrong
            .remove(check)
            .unwrap_or_else(|| panic!("{check}: {words}"));
        assert_eq!(found.severity, weight, "{found:?}");
        assert!(found.found.contains(words), "{found:?}");
        assert!(
            weight < FindingSeverity::Warning || !found.remedy.is_empty(),
            "{found:?}"
        );
        assert_eq!(wrong, BTreeMap::new(), "{check}");
    }
}

#[test]
fn remedies_of_directories_cover_every_path() {
    let mut facts = good();
    let path = |path: &str, owner, mode, wanted_mode| PathFacts {
        path: PathBuf::from(path),
        owner,
        wanted_owner: 5,
        mode,
        wanted_mode,
    };
    facts.misplaced = vec![
        path("/s", 5, 0o755, 0o700),
        path("/s/a", 5, 0o644, 0o600),
        path("/s/b", 6, 0o600, 0o600),
        path("/s/c", 5, 0o666, 0o600),
        path("/s/d", 6, 0o600, 0o600),
    ];
    facts.missing = vec![("/r".into(), 5)];
    let wrong = wrong(&facts);
    assert_eq!(
        wrong["modes"].remedy,
        "chmod 0600 /s/a /s/c && chmod 0700 /s"
    );
    assert_eq!(
        wrong["owners"].remedy,
        "chown 5 /s/b /s/d, after checking their content"
    );
    assert_eq!(wrong["directories"].remedy, "install -d -m 0700 -o 5 /r");
}

#[test]
fn root_leaves_cluster_and_steering_to_agents_user() {
    let mut facts = good();
    facts.unprivileged_owner = Some("sesame".to_owned());
    facts.cluster = None;
    facts.steering = Err("denied".to_owned());
    let wrong = wrong(&facts);
    assert_eq!(
        wrong["agent-user"].remedy,
        "sudo -u 'sesame' sesame-agent doctor"
    );
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

#[test]
fn large_envoys_have_enough_placeholders_at_the_limit() {
    let mut facts = good();
    facts.inotify.used = 10 * MAX_HELD;
    facts.inotify.held = Some(MAX_HELD);
    assert_eq!(wrong(&facts), BTreeMap::new());
}
