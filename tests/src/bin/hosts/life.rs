//! Restarts, kills and upgrades every component of a host under load. No request may fail.

use std::fs;
use std::time::Duration;

use sesame_tests::load::{Load, Plan};

use crate::inside::Inside;
use crate::machine::Machine;
use crate::objects::{backend, get, version, wait_version};
use crate::packages::Packages;
use crate::telling;

const AGENT: &str = "sesame-agent.service";
const ENVOY: &str = "sesame-envoy.service";
const SETTINGS: &str = "/etc/sesame/agent.yaml";
const DISK: &str = "mount -t tmpfs -o size=16m,mode=0700 tmpfs /var/lib/sesame && chown sesame:sesame /var/lib/sesame";

pub(crate) fn scenario(packages: &Packages) {
    let machine = Machine::start("life");
    let inside = machine.inside();
    inside.install(&packages.former());
    for unit in ["sesame.target", AGENT, ENVOY] {
        let state = inside.output(&["systemctl", "is-active", unit]);
        assert_eq!(state.trim(), "inactive", "{unit} after the installation");
    }
    for package in packages.second() {
        inside.put(&package);
    }
    inside.backend_address();
    inside.allow_host_endpoints();
    machine.part("life");
    telling::journal_and_reload(&inside);
    telling::encrypted_credentials(&inside);
    telling::sealing_key(&inside);
    machine.part("full-disk");
    machine.part("http3");
}

pub(crate) fn inside(inside: &Inside) {
    in_runtime(happens(inside));
}

pub(crate) fn in_runtime(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(future);
}

async fn happens(inside: &Inside) {
    let backend = backend().await;
    // The older package sets the source in an environment variable, which the next version no
    // longer supports.
    fs::write(inside.path(SETTINGS), "drain-seconds: 30\n").expect("a file");
    inside.ok(&["systemctl", "enable", "--quiet", "--now", "sesame.target"]);
    assert_eq!(inside.property(AGENT, "ActiveState"), "active");
    inside.serve(&version(backend.address(), 0));
    wait_version(0).await;
    wait_status_text(inside, "default/edge Serving").await;
    let envoys = inside.envoys();
    assert_eq!(envoys.len(), 1, "{envoys:?}");
    let load = Load::start(&Plan::new(vec![get("/always")]));
    load.pass(100).await;

    inside.meanwhile(&["systemctl", "restart", AGENT]).await;
    load.pass(100).await;
    let before = inside.main_pid(AGENT);
    inside.kill(AGENT, "KILL").await;
    another_main(inside, AGENT, before).await;
    load.pass(100).await;
    inside.meanwhile(&["systemctl", "stop", AGENT]).await;
    load.pass(100).await;
    inside.serve(&version(backend.address(), 1));
    inside.meanwhile(&["systemctl", "start", AGENT]).await;
    inside.ok(&["sesame-agent", "status"]);
    wait_version(1).await;

    let launcher = inside.main_pid(ENVOY);
    inside.kill(ENVOY, "KILL").await;
    another_main(inside, ENVOY, launcher).await;
    load.pass(100).await;
    let launcher = inside.main_pid(ENVOY);

    inside
        .meanwhile(&["sh", "-c", "dpkg --install /root/sesame-agent_*+2_*.deb"])
        .await;
    let settings = inside.read(SETTINGS);
    assert!(
        settings.contains("\nmanifests: /etc/sesame/manifests\n"),
        "{settings}"
    );
    for unit in [AGENT, ENVOY] {
        runs_installed_binary(inside, unit).await;
    }
    assert_eq!(inside.main_pid(ENVOY), launcher, "a reload is no restart");
    inside.serve(&version(backend.address(), 2));
    wait_version(2).await;
    assert_eq!(inside.envoys(), envoys, "the same Envoy is still serving");

    inside
        .meanwhile(&["sh", "-c", "dpkg --install /root/sesame-envoy_*+2_*.deb"])
        .await;
    let old = envoys.clone();
    inside
        .wait("the new Envoy has replaced the old one", move |inside| {
            let now = inside.envoys();
            (now.len() == 1 && now != old)
                .then_some(())
                .ok_or(format!("{now:?}"))
        })
        .await;
    inside.serve(&version(backend.address(), 3));
    wait_version(3).await;
    let envoys = inside.envoys();

    hangs(inside, &load).await;
    assert_eq!(inside.envoys(), envoys);
    inside.serve(&version(backend.address(), 4));
    wait_version(4).await;
    let report = load.stop().await;
    report.clean("host: agent restarted, killed, stopped, upgraded, hung; launcher killed, upgraded; Envoy upgraded");
}

async fn hangs(inside: &Inside, load: &Load) {
    let drop_in = inside.path("/run/systemd/system/sesame-agent.service.d");
    fs::create_dir_all(&drop_in).expect("a directory");
    fs::write(drop_in.join("watchdog.conf"), "[Service]\nWatchdogSec=4\n").expect("a file");
    inside.meanwhile(&["systemctl", "daemon-reload"]).await;
    inside.meanwhile(&["systemctl", "restart", AGENT]).await;
    let before = inside.main_pid(AGENT);
    // More than two watchdog periods: a healthy agent must not be restarted.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(inside.main_pid(AGENT), before, "{}", inside.log());
    inside.kill(AGENT, "STOP").await;
    another_main(inside, AGENT, before).await;
    load.pass(100).await;
    fs::remove_dir_all(&drop_in).expect("the drop-in can be removed");
    inside.meanwhile(&["systemctl", "daemon-reload"]).await;
    inside.meanwhile(&["systemctl", "restart", AGENT]).await;
}

/// Versions are served but not stored while the disk is full.
pub(crate) fn full_disk(inside: &Inside) {
    in_runtime(fills(inside));
}

async fn fills(inside: &Inside) {
    let backend = backend().await;
    inside.ok(&["systemctl", "stop", AGENT]);
    inside.ok(&["sh", "-c", DISK]);
    inside.ok(&["systemctl", "start", AGENT]);
    inside.serve(&version(backend.address(), 10));
    wait_version(10).await;
    let load = Load::start(&Plan::new(vec![get("/always")]));
    // `dd` writes until the disk is full.
    inside.output(&["dd", "if=/dev/zero", "of=/var/lib/sesame/filler", "bs=4k"]);
    inside.serve(&version(backend.address(), 11));
    wait_version(11).await;
    inside
        .wait(
            "the status reports a version that cannot be stored",
            |inside| {
                let status = inside.output(&["sesame-agent", "status"]);
                status
                    .contains("cannot be stored")
                    .then_some(())
                    .ok_or(status)
            },
        )
        .await;
    inside.meanwhile(&["systemctl", "restart", AGENT]).await;
    wait_version(11).await;
    inside.ok(&["rm", "/var/lib/sesame/filler"]);
    inside.serve(&version(backend.address(), 12));
    wait_version(12).await;
    inside
        .wait("the storage problem is no longer reported", |inside| {
            let status = inside.output(&["sesame-agent", "status"]);
            (!status.contains("cannot be stored"))
                .then_some(())
                .ok_or(status)
        })
        .await;
    load.stop().await.clean("host: disk full, agent restarted");
}

async fn wait_status_text(inside: &Inside, text: &'static str) {
    inside
        .wait("the unit's status", move |inside| {
            let status = inside.property(AGENT, "StatusText");
            status.contains(text).then_some(()).ok_or(status)
        })
        .await;
}

async fn another_main(inside: &Inside, unit: &'static str, before: u32) {
    inside
        .wait("the unit has a new main process", move |inside| {
            let (now, state) = (inside.main_pid(unit), inside.property(unit, "ActiveState"));
            let is_other = now != before && now != 0 && state == "active";
            is_other.then_some(()).ok_or(format!("{now} is {state}"))
        })
        .await;
}

async fn runs_installed_binary(inside: &Inside, unit: &'static str) {
    inside
        .wait("the unit runs the installed binary", move |inside| {
            let exe = format!("/proc/{}/exe", inside.main_pid(unit));
            let exe = inside.output(&["readlink", &exe]);
            (exe.trim() == "/usr/bin/sesame-agent")
                .then_some(())
                .ok_or(exe)
        })
        .await;
}
