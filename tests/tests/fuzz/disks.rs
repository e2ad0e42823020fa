//! Files on disk: mounted snapshots, the state directory, and files that an earlier agent and its
//! Envoy left behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use prost::Message as _;
use sesame_apply::state::{Accepted, StateDir};
use sesame_apply::{Applier, Desired};
use sesame_engine::history::History;
use sesame_envoy::log::{EnvoyLog, Mark};
use sesame_envoy::process::identity::{Identity, PID_FILE};
use sesame_files::directory;
use sesame_proto::digest;
use sesame_proto::keys;
use sesame_render::RenderOptions;
use sesame_render::layout::XdsLayout;
use sesame_sources::snapshots::SnapshotDirs;

use super::campaign::{run, scratch};
use super::edit::Form;
use super::seeds;

struct Tree {
    root: PathBuf,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        let mut pending = vec![root.to_owned()];
        while let Some(path) = pending.pop() {
            for entry in fs::read_dir(path).expect("a directory").flatten() {
                if entry.path().is_dir() {
                    pending.push(entry.path());
                } else {
                    let bytes = fs::read(entry.path()).expect("a file");
                    files.push((entry.path(), bytes));
                }
            }
        }
        files.sort();
        Self {
            root: root.to_owned(),
            files,
        }
    }

    /// A prefix byte selects the file.
    fn seeds(&self) -> Vec<Vec<u8>> {
        let numbered = (0u8..).zip(&self.files);
        numbered
            .map(|(number, (_, bytes))| [&[number][..], bytes].concat())
            .collect()
    }

    /// Replaces only the file that the first byte of the input selects.
    fn put(&self, input: &[u8]) -> &Path {
        let (which, bytes) = input.split_first().unwrap_or((&0, &[]));
        let which = usize::from(*which) % self.files.len();
        for (index, (path, good)) in self.files.iter().enumerate() {
            let bytes = if index == which { bytes } else { good };
            if fs::read(path).is_ok_and(|now| now == *bytes) {
                continue;
            }
            fs::create_dir_all(path.parent().expect("a parent directory")).expect("a directory");
            fs::write(path, bytes).expect("write");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("a mode");
        }
        &self.files[which].0
    }

    fn tidy(&self) {
        for (path, _) in Self::read(&self.root).files {
            if !self.files.iter().any(|(known, _)| *known == path) {
                fs::remove_file(path).expect("remove");
            }
        }
    }
}

#[test]
fn snapshot_directory() {
    let root = scratch();
    let gateway = seeds::two()[0];
    directory::write_keys(root.path(), &gateway.keys).expect("keys");
    directory::write(root.path(), &gateway.snapshot).expect("a snapshot");
    let tree = Tree::read(root.path());
    run("snapshot_directory", Form::Proto, &tree.seeds(), |input| {
        tree.put(input);
        let supply = SnapshotDirs::new(root.path(), None).scan();
        for supplied in supply.gateways.values() {
            let Some(complete) = &supplied.complete else {
                continue;
            };
            let found = digest::revision(&complete.encoded.snapshot());
            if complete.manifest_revision.as_ref() != Some(&found) {
                return Err(format!(
                    "revision {found} is accepted as {:?}",
                    complete.manifest_revision
                ));
            }
            if complete.encoded.keys() != gateway.keys {
                return Err("the accepted keys differ".to_owned());
            }
            return Ok(true);
        }
        Ok(false)
    });
}

/// If one file is damaged, the agent must load an accepted generation and store another.
#[test]
fn state_directory() {
    let root = scratch();
    let kept: Vec<(Vec<u8>, Vec<u8>)> = seeds::two()
        .map(|g| (packed(&g.snapshot.encode_to_vec()), keys::encode(&g.keys)))
        .to_vec();
    let state = StateDir::open(root.path(), 5).expect("a state directory");
    for (snapshot, keys) in &kept {
        state
            .accept(accepted(snapshot, keys))
            .expect("store the generation");
    }
    fs::write(root.path().join("pinned"), "1\n").expect("write");
    let tree = Tree::read(root.path());
    run("state_directory", Form::Text, &tree.seeds(), |input| {
        tree.put(input);
        let state = StateDir::open(root.path(), 5).map_err(|error| error.to_string())?;
        let loaded = state.load_accepted().map_err(|error| error.to_string())?;
        let Some(generation) = loaded.generation else {
            return Err(format!("no generation is found: {:?}", loaded.damage));
        };
        let found = (generation.snapshot.to_vec(), generation.keys.to_vec());
        if !kept.contains(&found) {
            return Err(format!(
                "loaded a generation that was never accepted: {:?}",
                generation.meta
            ));
        }
        let _ = state.list();
        let number = state
            .accept(accepted(&kept[0].0, &kept[0].1))
            .map_err(|error| error.to_string())?;
        if state.accepted() != Some(number) {
            return Err("the next accepted generation is not stored".to_owned());
        }
        fs::remove_dir_all(root.path().join("generations").join(number.to_string()))
            .expect("remove");
        tree.tidy();
        Ok(loaded.damage.is_empty())
    });
}

/// Like [`state_directory`], but with matching digests, as after a manual edit.
#[test]
fn kept_generations() {
    let mut inputs = Vec::new();
    for gateway in seeds::gateways().iter().take(50) {
        let plain = gateway.snapshot.encode_to_vec();
        inputs.extend([packed(&plain), plain]);
    }
    let root = scratch();
    let directory = root.path().join("gateways").join("0123456789abcdef");
    run("kept_generations", Form::Proto, &inputs, |input| {
        let _ = fs::remove_dir_all(&directory);
        let state = StateDir::open(&directory, 5).expect("a state directory");
        let compressed = packed(input);
        let good = packed(&[]);
        for (snapshot, keys) in [(input, &[][..]), (&compressed, &[]), (&good, input)] {
            state
                .accept(accepted(snapshot, keys))
                .map_err(|error| error.to_string())?;
        }
        fs::write(directory.join("pinned"), input).expect("write");
        let history = History::open(root.path(), None).map_err(|error| error.to_string())?;
        let _ = history.list();
        let read = (1..=3).map(|number| history.difference(number, 2).is_ok());
        let understood = read.filter(|read| *read).count() > 0;
        Ok(understood)
    });
}

fn packed(plain: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(plain, 1).expect("compressed")
}

fn accepted<'a>(snapshot: &'a [u8], keys: &'a [u8]) -> Accepted<'a> {
    Accepted {
        revision: "r",
        config: "c",
        cause: "a test",
        time: Timestamp::UNIX_EPOCH,
        addresses: &[],
        snapshot,
        keys,
    }
}

#[test]
fn runtime_directory() {
    let root = scratch();
    let layout = XdsLayout::new(root.path().join("xds"));
    let gateway = seeds::two()[0];
    let options = RenderOptions {
        addresses: vec![std::net::Ipv4Addr::LOCALHOST.into()],
        port_map: BTreeMap::new(),
        subscription_budget: 100,
        first_in_files: std::sync::Arc::default(),
        limits: sesame_render::limits::Limits::default(),
        layout: layout.clone(),
        admin_socket: root.path().join("admin.sock"),
        trusted_hops: 0,
        fleet_hosts: 1,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: sesame_render::EndpointRules::default(),
        session_tickets: false,
        stand_in_tickets: None,
        access_log: None,
        retained: BTreeMap::new(),
    };
    let rendered = sesame_render::render(&gateway.snapshot, &gateway.keys, &options);
    let wanted = || Desired {
        rendered: &rendered,
        serials: const { &BTreeMap::new() },
        may_empty: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let log = EnvoyLog::new(root.path().join("envoy.log"));
    let (mut applier, _) = runtime
        .block_on(Applier::open(layout.clone(), log.clone(), None))
        .expect("opened");
    runtime
        .block_on(applier.apply(wanted(), None))
        .expect("written");
    fs::write(root.path().join(PID_FILE), PID).expect("write");
    fs::write(log.path(), LOG).expect("write");
    let tree = Tree::read(root.path());
    let whole = applier.on_disk().content.clone();
    run("runtime_directory", Form::Text, &tree.seeds(), |input| {
        let changed = tree.put(input);
        let understood = match changed.file_name().and_then(|name| name.to_str()) {
            Some(PID_FILE) => Identity::read(changed).is_some(),
            Some("envoy.log") => {
                let _ = log.last_words(Mark::default());
                !log.complaints_since(Mark::default()).is_empty()
            }
            _ => {
                let opened = runtime.block_on(Applier::open(layout.clone(), log.clone(), None));
                let (mut applier, opened) = opened.map_err(|error| error.to_string())?;
                runtime
                    .block_on(applier.apply(wanted(), None))
                    .map_err(|error| error.to_string())?;
                if applier.on_disk().content != whole {
                    return Err("a damaged file is not rewritten".to_owned());
                }
                opened.junk.is_empty() && opened.undone == 0
            }
        };
        tree.tidy();
        Ok(understood)
    });
}

const PID: &str = r#"{
  "pid": 1,
  "start_time": 4242,
  "executable": {"path": "/usr/bin/envoy", "device": 1, "inode": 2, "modified": 3},
  "bootstrap_digest": "00",
  "arguments": ["--config-path", "/run/sesame/bootstrap.pb"],
  "lineage": {"base_id": 4711, "epoch": 3},
  "stopping": false
}"#;

const LOG: &str = "[2026-01-01T00:00:00.000][info][main] starting
[2026-01-01T00:00:00.100][warning][config] lds: listener 'listener/0.0.0.0:80' config rejected: cannot bind '0.0.0.0:80': Address already in use
[2026-01-01T00:00:00.200][warning][config] Filesystem config update rejected: Error adding/updating cluster(s) Service/ns/bad/80: Invalid TLS
certificate
[2026-01-01T00:00:00.300][critical][main] error initializing configuration '/run/sesame/bootstrap.pb': missing
-----BEGIN PRIVATE KEY-----
AAAA
-----END PRIVATE KEY-----
";
