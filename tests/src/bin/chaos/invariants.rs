//! Invariants that are checked in a quiet phase.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{SHARD_ENTRY, manifest_name};
use sesame_tests::certs::Leaf;
use sesame_tests::controller::{NAMESPACE, condition};
use sesame_tests::manifests::NAMESPACE as OBJECTS;
use sesame_tests::processes;
use sesame_tests::reports::report_path;

use super::objects;
use super::stage::Stage;

const PEM: &str = "PRIVATE KEY";
/// Length of the base64 text before the secret part of a P-256 key in PKCS#8.
const KEY_HEADER: usize = 48;
/// Hosts report only the start of a revision.
const REVISION: usize = 12;

const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";
/// One for each Gateway.
const ENVOYS: usize = 2;

/// A broken invariant.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// Host or program.
    pub(crate) place: String,
    pub(crate) what: String,
}

fn broken(place: &str, what: impl Into<String>) -> Broken {
    Broken {
        place: place.to_owned(),
        what: what.into(),
    }
}

/// Differences from the newest configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing {
    /// Hosts that do not serve it.
    pub(crate) serving: Vec<Broken>,
    /// Reports and conditions that do not say so.
    pub(crate) statuses: Vec<Broken>,
}

/// Compares the hosts and statuses with the newest configuration of a Gateway, whose marker is
/// `version`.
pub(crate) async fn missing(stage: &Stage, gateway: &str, version: &str) -> Missing {
    let mut missing = Missing::default();
    let trust = stage.authority.trust();
    for host in &stage.hosts {
        let what = match host.marker(gateway, version, &trust).send().await {
            Ok(reply) if reply.status == 200 => continue,
            Ok(reply) => format!("status {}", reply.status),
            Err(error) => format!("{error:#}"),
        };
        let what = format!("does not serve the newest route of {gateway}: {what}");
        missing.serving.push(broken(&host.name, what));
    }
    missing.statuses = match outdated_statuses(stage, gateway).await {
        Ok(outdated) => outdated,
        Err(what) => vec![broken("cluster", what)],
    };
    missing
}

async fn outdated_statuses(stage: &Stage, gateway: &str) -> Result<Vec<Broken>, String> {
    let get = async |path: &str| {
        let object = stage.client.get(path).await;
        object.map_err(|failure| format!("{path}: {failure}"))
    };
    let name = NamespacedName::new(OBJECTS, gateway);
    let manifest = manifest_name(&name);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{manifest}");
    let revision = get(&path).await?["data"]["revision"].as_str().map(short);
    let newest = revision.ok_or_else(|| format!("{path} has no revision"))?;
    let mut outdated = Vec::new();
    outdated.extend(unprogrammed(&get(&format!("{GATEWAYS}/{gateway}")).await?));
    for host in &stage.hosts {
        let report = get(&report_path(&name, &host.name)).await?;
        outdated.extend(outdated_report(&host.name, &report["status"], &newest));
    }
    Ok(outdated)
}

fn short(revision: &str) -> String {
    revision.chars().take(REVISION).collect()
}

fn unprogrammed(gateway: &Value) -> Option<Broken> {
    let programmed = condition(&gateway["status"]["conditions"], "Programmed");
    let is_true = programmed["status"] == "True"
        && programmed["observedGeneration"] == gateway["metadata"]["generation"];
    (!is_true).then(|| {
        broken(
            "cluster",
            format!(
                "{}'s Programmed is {programmed}",
                gateway["metadata"]["name"]
            ),
        )
    })
}

fn outdated_report(host: &str, status: &Value, newest: &str) -> Option<Broken> {
    let is_newest = status["state"] == "Serving"
        && status["wantedRevision"] == *newest
        && status["appliedRevision"] == *newest;
    (!is_newest).then(|| {
        let [state, wanted, applied, message] =
            ["state", "wantedRevision", "appliedRevision", "message"].map(|field| &status[field]);
        broken(
            host,
            format!(
                "reports {state}, wanted {wanted}, applied {applied}, {message}; newest is {newest}"
            ),
        )
    })
}

/// Returns hosts with more or less than one Envoy per Gateway, with an Envoy that was not upgraded, or with
/// zombies.
pub(crate) fn processes(stage: &Stage) -> Vec<Broken> {
    let mut found = Vec::new();
    for host in &stage.hosts {
        let all = processes::below(&host.files());
        let envoys = host.agent.envoy_pids();
        if envoys.len() == ENVOYS {
            let outdated = envoys.iter().filter(|pid| !host.is_envoy_current(**pid));
            for pid in outdated {
                let what = format!("Envoy {pid} does not run the installed binary");
                found.push(broken(&host.name, what));
            }
        } else {
            let lines = all
                .iter()
                .map(|one| format!("{} {}", one.pid, one.arguments[0]));
            let lines: Vec<String> = lines.collect();
            found.push(broken(
                &host.name,
                format!(
                    "{} Envoys instead of {ENVOYS}: {}",
                    envoys.len(),
                    lines.join(", ")
                ),
            ));
        }
        for process in all.iter().filter(|process| process.is("sesame-agent")) {
            let zombies = zombies_of(process.pid);
            if !zombies.is_empty() {
                found.push(broken(
                    &host.name,
                    format!("zombies: {}", zombies.join(", ")),
                ));
            }
        }
    }
    found
}

fn zombies_of(parent: i32) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted");
    let stats = entries
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let is_ours = |stat: &String| {
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.starts_with(&format!("Z {parent} "))
    };
    stats
        .filter(is_ours)
        .map(|stat| {
            stat.split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

/// Returns places that contain a private key, or a key file that others can read.
pub(crate) async fn leaked_keys(stage: &Stage) -> Vec<Broken> {
    let needles = Needles::of(&stage.authority.issue(&[objects::SECURE]));
    let mut found = Vec::new();
    match stage.client.get("/api/v1/configmaps").await {
        Ok(list) => {
            for object in list["items"].as_array().into_iter().flatten() {
                if needles.are_in_config_map(object) {
                    let name = &object["metadata"]["name"];
                    found.push(broken("cluster", format!("ConfigMap {name} has a key")));
                }
            }
        }
        Err(failure) => found.push(broken("cluster", format!("ConfigMaps: {failure}"))),
    }
    for (number, replica) in stage.replicas.iter().enumerate() {
        if needles.are_in(replica.controller.log().as_bytes()) {
            let place = format!("controller-{number}");
            found.push(broken(&place, "its log has a private key"));
        }
    }
    for host in &stage.hosts {
        if needles.are_in(host.agent.log().as_bytes()) {
            found.push(broken(&host.name, "its log has a private key"));
        }
        needles.search(&host.files(), &host.name, &mut found);
    }
    found
}

/// What every private key of the run contains, as text or binary.
struct Needles {
    text: [String; 2],
    binary: Vec<u8>,
}

impl Needles {
    /// All keys have the same algorithm, so they have the same header.
    fn of(leaf: &Leaf) -> Self {
        let line = leaf.key_pem.lines().nth(1).unwrap_or_default();
        let header = &line[..KEY_HEADER];
        Self {
            text: [PEM.to_owned(), header.to_owned()],
            binary: STANDARD.decode(header).expect("base64"),
        }
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let mut windows = bytes.windows(self.binary.len());
        self.text.iter().any(|needle| text.contains(needle))
            || windows.any(|window| window == self.binary)
    }

    fn are_in_config_map(&self, object: &Value) -> bool {
        let text = object["data"].to_string();
        let entries = object["binaryData"].as_object();
        let mut entries = entries.into_iter().flatten();
        self.are_in(text.as_bytes())
            || entries.any(|(name, value)| {
                let bytes = STANDARD.decode(value.as_str().unwrap_or_default());
                let bytes = bytes.unwrap_or_default();
                let is_shard = name == SHARD_ENTRY;
                let plain = is_shard.then(|| zstd::decode_all(bytes.as_slice()).ok());
                self.are_in(&plain.flatten().unwrap_or(bytes))
            })
    }

    /// Searches files that other users can read.
    fn search(&self, directory: &Path, place: &str, found: &mut Vec<Broken>) {
        use std::os::unix::fs::MetadataExt as _;

        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            // Files come and go.
            let Ok(meta) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            if meta.is_dir() {
                self.search(&path, place, found);
            } else if meta.is_file() && meta.mode() & 0o077 != 0 {
                let bytes = std::fs::read(&path).unwrap_or_default();
                if self.are_in(&bytes) {
                    let path = path.display();
                    found.push(broken(place, format!("others can read the key in {path}")));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::PrivateKeyDer;
    use serde_json::json;
    use sesame_tests::certs::Authority;

    use super::*;

    #[test]
    fn keys_are_found_in_text_and_binary() {
        let authority = Authority::new("chaos");
        let needles = Needles::of(&authority.issue(&["a.test"]));
        let other = authority.issue(&["b.test"]);
        assert!(!needles.are_in(other.certificate_pem.as_bytes()));
        assert!(needles.are_in(other.key_pem.as_bytes()));
        let body: String = other.key_pem.lines().skip(1).take(1).collect();
        assert!(needles.are_in(body.as_bytes()));
        let Ok(PrivateKeyDer::Pkcs8(key)) = other.key() else {
            panic!("not PKCS#8");
        };
        let key = key.secret_pkcs8_der();
        assert!(needles.are_in(key));

        let shard = STANDARD.encode(zstd::encode_all(key, 3).expect("in memory"));
        let object = json!({"binaryData": {SHARD_ENTRY: shard}});
        assert!(needles.are_in_config_map(&object));
        let object = json!({"data": {"key": other.key_pem}});
        assert!(needles.are_in_config_map(&object));
        let object = json!({"data": {"certificate": other.certificate_pem}});
        assert!(!needles.are_in_config_map(&object));
    }

    #[test]
    fn only_readable_files_with_keys_are_found() {
        use std::os::unix::fs::PermissionsExt as _;

        let leaf = Authority::new("chaos").issue(&["a.test"]);
        let needles = Needles::of(&leaf);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        std::fs::write(&path, &leaf.key_pem).expect("a file");
        for (mode, count) in [(0o600, 0), (0o640, 1), (0o604, 1)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("permissions");
            let mut found = Vec::new();
            needles.search(directory.path(), "host-1", &mut found);
            assert_eq!(found.len(), count, "{mode:o}: {found:?}");
        }
    }
}
