//! Checks that stopping or removing the service drains connections, and that a purge leaves no
//! files.

use std::collections::BTreeSet;

use crate::inside::Inside;
use crate::life::in_runtime;
use crate::machine::Machine;
use crate::objects::{backend, get, version, wait_version};
use crate::packages::Packages;

/// Excludes volatile files, logs, caches, and the state of dpkg and systemd.
const FIND_FILES: &str = "find / -xdev '(' -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /dev -o -path /root \
 -o -path /var/log -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/lib/systemd -o -path /var/tmp ')' -prune -o -print";

pub(crate) fn scenario(packages: &Packages) {
    let machine = Machine::start("removal");
    let inside = machine.inside();
    let before = files(&inside);
    inside.install(&packages.first());
    inside.backend_address();
    inside.allow_host_endpoints();
    machine.part("stop");
    // Removing the package must stop the service.
    inside.ok(&["systemctl", "start", "sesame.target"]);
    inside.ok(&["dpkg", "--remove", "sesame-agent", "sesame-envoy"]);
    assert!(
        inside.envoys().is_empty(),
        "removing the package stops all Envoys"
    );
    assert!(inside.path("/etc/sesame/manifests/all.yaml").exists());
    inside.ok(&["dpkg", "--purge", "sesame-agent", "sesame-envoy"]);
    let left: Vec<String> = files(&inside).difference(&before).cloned().collect();
    // Programs like useradd make backup copies.
    let ours = |file: &&String| !file.starts_with("/etc/") || !file.ends_with('-');
    let left: Vec<&String> = left.iter().filter(ours).collect();
    assert!(left.is_empty(), "files left after the purge: {left:?}");
    assert!(!inside.path("/run/sesame").exists());
    let failed = inside.output(&["systemctl", "--failed", "--no-legend"]);
    assert_eq!(failed.trim(), "");
}

fn files(inside: &Inside) -> BTreeSet<String> {
    let found = inside.ok(&["sh", "-c", FIND_FILES]);
    found.lines().map(str::to_owned).collect()
}

pub(crate) fn stop(inside: &Inside) {
    in_runtime(async {
        let backend = backend().await;
        inside.ok(&["systemctl", "enable", "--quiet", "--now", "sesame.target"]);
        inside.serve(&version(backend.address(), 1));
        wait_version(1).await;
        let slow = tokio::spawn(async { get("/always/delay/8000ms").send().await });
        let arrived = "the request is under way";
        sesame_tests::wait::eventually(arrived, crate::inside::TIMEOUT, async || {
            (backend.count() > 1)
                .then_some(())
                .ok_or("not yet".to_owned())
        })
        .await;
        inside
            .meanwhile(&["systemctl", "stop", "sesame.target"])
            .await;
        assert!(
            inside.envoys().is_empty(),
            "stopping the target stops the Envoys"
        );
        let slow = slow
            .await
            .expect("the task does not panic")
            .expect("the request is answered");
        assert_eq!(slow.status, 200);
        for unit in [
            "sesame.target",
            "sesame-agent.service",
            "sesame-envoy.service",
            "sesame-drain.service",
        ] {
            inside
                .wait("the unit has stopped cleanly", move |inside| {
                    let (state, result) = (
                        inside.property(unit, "ActiveState"),
                        inside.property(unit, "Result"),
                    );
                    let well = state == "inactive" && (result == "success" || result.is_empty());
                    well.then_some(())
                        .ok_or(format!("{unit} is {state}: {result}"))
                })
                .await;
        }
    });
}
