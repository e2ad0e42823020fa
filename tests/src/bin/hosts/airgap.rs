//! Installs and updates an air-gapped host using only files. Counts every packet that tries to
//! leave the host.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use sesame_tests::agent::agent_binary;
use sesame_tests::backend::Backend;
use sesame_tests::cluster::definitions;
use sesame_tests::envoy::workspace;
use sesame_tests::load::{Load, Plan};
use tempfile::TempDir;

use crate::inside::{BACKEND, Inside, TIMEOUT};
use crate::life::in_runtime;
use crate::machine::Machine;
use crate::network::{DEVICE, SITE, attach, inside_own};
use crate::objects::{get, version, wait_version};
use crate::packages::Packages;

const SETTINGS: &str = "/etc/sesame/agent.yaml";
const INSTALL: &str = "cd /root &&
openssl pkeyutl -verify -pubin -inkey signer.pub -rawin -in sesame-*-airgap.tar -sigfile sesame-*-airgap.tar.sig &&
tar -xf sesame-*-airgap.tar && rm sesame-*-airgap.tar && cd sesame-*-airgap && ./install.sh host --key ../signer.pub";
const AS_USER: [&str; 5] = ["runuser", "--user", "sesame", "--", "sesame-agent"];
/// The backend's port, fixed because the accepted bundle still uses it after a reboot.
const BACKEND_PORT: u16 = 8099;
const UPDATES: u32 = 3;

pub(crate) fn scenario(packages: &Packages) {
    if !inside_own("airgap") {
        return;
    }
    let mut machine = Machine::start("airgap");
    let inside = machine.inside();
    cut_off(&inside);
    let signer = Signer::new();
    let archive = signer.archive(packages);
    for file in [
        &archive,
        &archive.with_extension("tar.sig"),
        &signer.path("signer.pub"),
    ] {
        inside.put(file);
    }
    let begun = Instant::now();
    inside.ok(&["sh", "-c", INSTALL]);
    fs::copy(
        signer.path("signer.pub"),
        inside.path("/etc/sesame/signer.pub"),
    )
    .expect("a file");
    let shipped = inside.read(SETTINGS);
    let bundles =
        "bundle-dir: /var/lib/sesame-bundles\ngateway: default/edge\nhost-endpoints: allow\n";
    let settings = shipped.replace(
        "\nmanifests: /etc/sesame/manifests\n",
        &format!("\n{bundles}"),
    );
    assert_ne!(settings, shipped);
    fs::write(inside.path(SETTINGS), settings).expect("a file");
    inside.ok(&[&AS_USER[..], &["trust", "add", "/etc/sesame/signer.pub"]].concat());
    let recipient = inside.ok(&[&AS_USER[..], &["identity"]].concat());
    for number in 0..=UPDATES {
        inside.put(&signer.bundle(number, recipient.trim()));
    }
    inside.ok(&["systemctl", "enable", "--quiet", "--now", "sesame.target"]);
    inside.backend_address();
    inside.ok(&["sesame-agent", "apply", "/root/0.bundle"]);
    assert!(begun.elapsed() < TIMEOUT, "it took {:.1?}", begun.elapsed());
    println!(
        "host: from installation to an accepted bundle: {:.1?}",
        begun.elapsed()
    );
    machine.part("bundles");
    nothing_left(&inside);
    inside.ok(&["sesame-agent", "doctor"]);

    machine.reboot();
    let inside = machine.inside();
    cut_off(&inside);
    inside.backend_address();
    machine.part("bundles-again");
    nothing_left(&inside);
    // Check that the packet counter works.
    inside.output(&["bash", "-c", &format!("echo >/dev/udp/{SITE}/9")]);
    inside.wait_for("an outgoing packet is counted", |inside| {
        let sent = sent(inside);
        (sent > 0).then_some(()).ok_or(sent)
    });
}

pub(crate) fn serve(inside: &Inside) {
    in_runtime(async {
        let _backend = backend().await;
        wait_version(0).await;
        let load = Load::start(&Plan::new(vec![get("/always")]));
        for number in 1..=UPDATES {
            load.pass(100).await;
            let bundle = format!("/root/{number}.bundle");
            inside.ok(&["sesame-agent", "apply", &bundle]);
            wait_version(number).await;
        }
        load.pass(100).await;
        let report = load.stop().await;
        report.clean("host: three bundles, no network");
    });
}

pub(crate) fn serve_again(inside: &Inside) {
    in_runtime(async {
        let _backend = backend().await;
        wait_version(UPDATES).await;
        println!(
            "host: first response after a reboot without a network: at most {} ms",
            inside.age().as_millis()
        );
    });
}

async fn backend() -> Backend {
    let address = format!("{BACKEND}:{BACKEND_PORT}")
        .parse()
        .expect("an address");
    let backend = Backend::start_at("app", address).await;
    backend.expect("the machine has the address")
}

/// Connects the machine to a peer that never responds.
fn cut_off(inside: &Inside) {
    attach(inside);
    let resolver = format!("nameserver {SITE}\n");
    fs::write(inside.path("/etc/resolv.conf"), resolver).expect("a file");
    nothing_left(inside);
}

fn nothing_left(inside: &Inside) {
    assert_eq!(sent(inside), 0, "the host sent packets or tried to");
}

/// Includes ARP requests.
fn sent(inside: &Inside) -> u64 {
    let file = |name| format!("/sys/class/net/{DEVICE}/statistics/tx_{name}");
    let counts = inside.ok(&["cat", &file("packets"), &file("dropped"), &file("errors")]);
    counts
        .lines()
        .map(|line| line.parse::<u64>().expect("a number"))
        .sum()
}

struct Signer {
    directory: TempDir,
}

impl Signer {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let signer = Self { directory };
        let (key, public) = (signer.path("signer.key"), signer.path("signer.pub"));
        let key = key.to_string_lossy();
        run(Command::new("openssl").args(["genpkey", "-algorithm", "ed25519", "-out", &key]));
        run(Command::new("openssl")
            .args(["pkey", "-in", &key, "-pubout", "-out"])
            .arg(public));
        signer
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn archive(&self, packages: &Packages) -> std::path::PathBuf {
        let (out, images) = (self.path("archive"), self.path("images"));
        fs::create_dir(&images).expect("a directory");
        fs::write(images.join("none.oci.tar"), "no image\n").expect("a file");
        run(Command::new(workspace().join("images/airgap/build.sh"))
            .args([&out, packages.built(), &images, &definitions()])
            .env("SIGNING_KEY", self.path("signer.key")));
        let entries = fs::read_dir(out).expect("an archive was built");
        let mut files = entries.flatten().map(|entry| entry.path());
        files
            .find(|file| file.extension().is_some_and(|end| end == "tar"))
            .expect("an archive")
    }

    fn bundle(&self, number: u32, recipient: &str) -> std::path::PathBuf {
        let manifests = self.path(&format!("{number}.d"));
        fs::create_dir(&manifests).expect("a directory");
        let backend = format!("{BACKEND}:{BACKEND_PORT}")
            .parse()
            .expect("an address");
        fs::write(manifests.join("all.yaml"), version(backend, number)).expect("a file");
        let bundle = self.path(&format!("{number}.bundle"));
        let path = |path: &Path| path.to_string_lossy().into_owned();
        run(Command::new(agent_binary())
            .args(["bundle", "create", "--gateway", "default/edge"])
            .args(["--manifests", &path(&manifests), "--recipient", recipient])
            .args(["--signing-key", &path(&self.path("signer.key"))])
            .args(["-o", &path(&bundle)]));
        bundle
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("run the program");
    assert!(output.status.success(), "{command:?}: {output:?}");
}
