//! Golden cases: Gateway API YAML in; snapshots, statuses and Envoy resources out.
//!
//! A case is a directory below `tests/golden`. Its `input.yaml` is written by people and says which rule it
//! follows; the other files are what came out, compared byte for byte. Whether an output is right is for people
//! to judge when they read the difference: nothing here may decide that.

mod yaml;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use sesame_agent::dump;
use sesame_agent::layout::XdsLayout;
use sesame_agent::render;
use sesame_controller::api::decode::{self, Limits};
use sesame_controller::resolve::{Options, ResolvedGateway, resolve};
use sesame_controller::world::World;

pub use self::yaml::to_yaml;

/// Cases whose output is known to be wrong, with what is wrong. They have no outputs until it is mended.
pub const PENDING: &[(&str, &str)] = &[];

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

/// The names of the files that are compared.
pub const OUTPUTS: [&str; 3] = ["conditions.yaml", "envoy.yaml", "snapshot.yaml"];

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
    /// Whether the output is known to be wrong.
    pub fn is_pending(&self) -> bool {
        PENDING.iter().any(|(name, _)| *name == self.name)
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
        let input = self.committed("input.yaml").context("no input.yaml")?;
        ensure!(
            input.starts_with("# ") && input.contains("\n# Rule: "),
            "input.yaml must start with a comment that says what the case shows, and then `# Rule: ...`"
        );
        let (world, refused) = read(&input);
        let resolution = resolve(&world, &Options::default());

        let mut statuses = serde_json::to_value(&resolution.statuses)?;
        if self.name != SHOWS_FEATURES {
            remove_features(&mut statuses);
        }
        if let (Value::Object(statuses), false) = (&mut statuses, refused.is_empty()) {
            statuses.insert("refused".to_owned(), refused.into());
        }

        let mut snapshots = Vec::new();
        let mut resources = Vec::new();
        let mut bootstraps = BTreeMap::new();
        for gateway in &resolution.gateways {
            snapshots.push(sesame_proto::json::to_value(&gateway.snapshot));
            let out = render::render(&gateway.snapshot, &gateway.keys, &host(gateway));
            let mut value = dump::resources(&out, dump::Redact::PrivateKeys)?;
            if let Value::Object(value) = &mut value {
                value.insert("gateway".to_owned(), gateway.gateway.to_string().into());
                let problems: Vec<String> = out.problems.iter().map(ToString::to_string).collect();
                if !problems.is_empty() {
                    value.insert("problems".to_owned(), json!(problems));
                }
            }
            resources.push(value);
            bootstraps.insert(gateway.gateway.to_string(), render::static_bootstrap(&out)?);
        }
        Ok(Outcome {
            files: BTreeMap::from([
                ("conditions.yaml", to_yaml(&statuses)),
                ("envoy.yaml", to_yaml(&resources.into())),
                ("snapshot.yaml", to_yaml(&snapshots.into())),
            ]),
            bootstraps,
        })
    }
}

/// The host of every case: it has the addresses that a Gateway asks for, else it listens on all.
pub fn host(gateway: &ResolvedGateway) -> render::Options {
    let mut addresses: Vec<IpAddr> = gateway
        .snapshot
        .addresses
        .iter()
        .filter_map(|address| address.parse().ok())
        .collect();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::UNSPECIFIED.into());
    }
    render::Options {
        addresses,
        port_map: BTreeMap::new(),
        subscription_budget: 100,
        layout: XdsLayout::new("/run/sesame/xds"),
        admin_socket: "/run/sesame/admin.sock".into(),
        trusted_hops: 0,
    }
}

/// Asks Envoy whether it would take the configuration; the error is what it says on stderr.
pub fn validate(envoy: &Path, bootstrap: &[u8]) -> Result<()> {
    // A temporary file is 0600, as a file with keys must be.
    let mut file = tempfile::Builder::new().suffix(".pb").tempfile()?;
    file.write_all(bootstrap)?;
    file.flush()?;
    let output = Command::new(envoy)
        .args(["--mode", "validate", "--log-level", "error", "--config-path"])
        .arg(file.path())
        .output()
        .with_context(|| format!("cannot run {}", envoy.display()))?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
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
                            .map(|field| format!("{key}: unknown field {field}")),
                    );
                    world.insert(decoded.object);
                }
                Err(error) => refused.push(error.to_string()),
            }
        }
    }
    (world, refused)
}

fn remove_features(statuses: &mut Value) {
    let classes = statuses.get_mut("gatewayClasses").and_then(Value::as_object_mut);
    for (_, class) in classes.into_iter().flatten() {
        if let Value::Object(class) = class {
            class.remove("supportedFeatures");
        }
    }
}

/// The first lines in which two texts differ, with a little of what is around them.
pub fn excerpt(committed: &str, now: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (committed.lines().collect(), now.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..]
        .iter()
        .rev()
        .zip(new[start..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let mut lines = vec![format!("@@ line {} @@", start + 1)];
    lines.extend(old[start.saturating_sub(3)..start].iter().map(|line| format!("  {line}")));
    lines.extend(shown(&old[start..old.len() - end], '-'));
    lines.extend(shown(&new[start..new.len() - end], '+'));
    lines.extend(old[old.len() - end..].iter().take(3).map(|line| format!("  {line}")));
    lines.join("\n")
}

/// At most twenty lines of a difference.
fn shown(lines: &[&str], sign: char) -> Vec<String> {
    let mut shown: Vec<String> = lines
        .iter()
        .take(20)
        .map(|line| format!("{sign} {line}"))
        .collect();
    if lines.len() > shown.len() {
        shown.push(format!("{sign} ... {} more lines", lines.len() - shown.len()));
    }
    shown
}
