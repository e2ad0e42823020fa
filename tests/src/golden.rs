//! Golden cases: Gateway API YAML in; snapshots, statuses and Envoy resources out.
//!
//! A case is a directory below `tests/golden`. Its `input.yaml` is written by people and says which rule it
//! follows; the other files are what came out, compared byte for byte. Whether an output is right is for people
//! to judge when they read the difference: nothing here may decide that.

mod difference;
mod yaml;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use sesame_gateway_api::decode::{self, Limits};
use sesame_gateway_api::resolve::{Options, Problem, ResolvedGateway, resolve};
use sesame_gateway_api::world::World;
use sesame_render::dump::{self, Redact};
use sesame_render::layout::XdsLayout;

pub use self::difference::excerpt;
pub use self::yaml::to_yaml;

/// What a case is made of.
pub const INPUT: &str = "input.yaml";
/// What comes out of it.
pub const OUTPUTS: [&str; 3] = ["conditions.yaml", "envoy.yaml", "snapshot.yaml"];
/// In place of outputs that are known to be wrong: one line that says what is.
pub const PENDING: &str = "pending.txt";

/// The one case that shows `supportedFeatures`, so that a new feature changes one file.
const SHOWS_FEATURES: &str = "gatewayclass-ours";

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The directory's name.
    pub name: String,
    directory: PathBuf,
}

/// What came out of a case.
pub struct Outcome {
    /// The texts of [`OUTPUTS`] by file name.
    pub files: BTreeMap<&'static str, String>,
    /// What Envoy is asked to take, by Gateway. Holds private keys.
    pub bootstraps: BTreeMap<String, Bytes>,
}

/// All cases by name.
pub fn cases() -> Result<Vec<Case>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut cases = Vec::new();
    for entry in fs::read_dir(&root).with_context(|| format!("cannot list {}", root.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let directory = entry.path();
            cases.push(Case { name, directory });
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

impl Case {
    /// Whether its outputs are known to be wrong, and left out.
    pub fn is_pending(&self) -> bool {
        self.committed(PENDING).is_some()
    }

    /// The committed text of a file, if there is one.
    pub fn committed(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(file)).ok()
    }

    /// Replaces a file.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Runs the case.
    pub fn run(&self) -> Result<Outcome> {
        let input = self.committed(INPUT).context("no input.yaml")?;
        ensure!(
            input.starts_with("# ") && input.contains("\n# Rule: "),
            "input.yaml must start with a comment that says what the case shows, and then `# Rule: ...`"
        );
        let (world, refused) = read(&input);
        let resolution = resolve(&world, &Options::default());

        let mut conditions = serde_json::to_value(&resolution.statuses)?;
        if self.name != SHOWS_FEATURES {
            remove_features(&mut conditions);
        }
        let problems = resolution
            .problems
            .iter()
            .map(|Problem { object, message }| format!("{object}: {message}"));
        add(&mut conditions, "problems", problems);
        add(&mut conditions, "refused", refused);

        let mut snapshots = Vec::new();
        let mut resources = Vec::new();
        let mut bootstraps = BTreeMap::new();
        for resolved in &resolution.gateways {
            snapshots.push(sesame_proto::json::to_value(&resolved.snapshot));
            let rendered =
                sesame_render::render(&resolved.snapshot, &resolved.keys, &host(resolved));
            let mut value = dump::resources(&rendered, Redact::PrivateKeys)?;
            let gateway = resolved.gateway.to_string();
            if let Value::Object(value) = &mut value {
                value.insert("gateway".to_owned(), json!(gateway));
            }
            let problems = rendered.problems.iter().map(ToString::to_string);
            add(&mut value, "problems", problems);
            resources.push(value);
            bootstraps.insert(gateway, sesame_render::static_bootstrap(&rendered)?);
        }
        Ok(Outcome {
            files: BTreeMap::from([
                ("conditions.yaml", to_yaml(&conditions)),
                ("envoy.yaml", to_yaml(&resources.into())),
                ("snapshot.yaml", to_yaml(&snapshots.into())),
            ]),
            bootstraps,
        })
    }
}

/// The host of every case: it has the addresses that a Gateway asks for, else it listens on all.
fn host(gateway: &ResolvedGateway) -> sesame_render::Options {
    let mut addresses: Vec<IpAddr> = gateway
        .snapshot
        .addresses
        .iter()
        .filter_map(|address| address.parse().ok())
        .collect();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::UNSPECIFIED.into());
    }
    sesame_render::Options {
        addresses,
        port_map: BTreeMap::new(),
        subscription_budget: 100,
        limits: sesame_render::limits::Limits::default(),
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: 0,
        system_ca: "/etc/ssl/certs/ca-certificates.crt".into(),
        endpoints: sesame_render::EndpointRules::default(),
    }
}

/// The objects of the input, and what was refused of it.
fn read(input: &str) -> (World, Vec<String>) {
    let mut world = World::default();
    let mut refused = Vec::new();
    for document in decode::split(input) {
        for outcome in decode::decode(document.text, &Limits::default()) {
            match outcome {
                Ok(decoded) => {
                    let key = decoded.object.key();
                    refused.extend(
                        decoded
                            .unknown_fields
                            .iter()
                            .map(|(_, field)| format!("{key}: unknown field {}", field.path)),
                    );
                    world.insert(decoded.object);
                }
                Err(error) => refused.push(error.to_string()),
            }
        }
    }
    (world, refused)
}

/// Adds a list to a mapping unless it is empty.
fn add(value: &mut Value, key: &str, list: impl IntoIterator<Item = String>) {
    let list: Vec<String> = list.into_iter().collect();
    if let (Value::Object(value), false) = (value, list.is_empty()) {
        value.insert(key.to_owned(), json!(list));
    }
}

fn remove_features(conditions: &mut Value) {
    let classes = conditions
        .get_mut("gatewayClasses")
        .and_then(Value::as_object_mut);
    for (_, class) in classes.into_iter().flatten() {
        if let Value::Object(class) = class {
            class.remove("supportedFeatures");
        }
    }
}
