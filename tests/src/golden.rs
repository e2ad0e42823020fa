//! Golden cases: Gateway API YAML as input, statuses and Envoy resources as output. Outputs contain
//! only differences from `_defaults`. Reviewers decide whether a changed output is correct.

mod defaults;
mod difference;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Value, json};
use sesame_kinds::decode::{self, DecodeLimits};
use sesame_kinds::world::World;
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::schema::{DESCRIPTORS, Snapshot};
use sesame_render::dump::{self, Redact};
use sesame_render::{AccessLogSink, RenderOptions};
use sesame_resolver::{Options, Problem, ResolvedGateway, resolve};

pub use self::defaults::Defaults;
pub use self::difference::excerpt;
pub use self::yaml::to_yaml;
use crate::rendering::options;

/// Name of the file with a case's objects.
pub const INPUT: &str = "input.yaml";
/// Names of a case's output files.
pub const OUTPUTS: [&str; 2] = ["conditions.yaml", "envoy.yaml"];
const DEFAULTS: &str = "_defaults";
/// Excludes a default object from the case.
const WITHOUT: &str = "# Without: ";

/// Specifies the destination of the case's access logs.
const ACCESS_LOG: &str = "# Access log: ";

/// Enables support for Gateways outside the cluster.
const EXTRA_MINIMAL_OCG: &str = "# Extra minimal OCG: on";

/// The only case that shows `supportedFeatures`, so that a new feature changes only one file.
const SHOWS_FEATURES: &str = "gatewayclass-ours";

/// A golden case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of the case's directory.
    pub name: String,
    directory: PathBuf,
}

/// The outputs of a case.
pub struct Outcome {
    /// Complete outputs with defaults, by name from [`OUTPUTS`].
    pub files: BTreeMap<&'static str, Value>,
    /// The Gateways' bootstraps, which contain private keys.
    pub bootstraps: BTreeMap<String, Bytes>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Returns the defaults for an output file.
pub fn defaults(file: &str) -> Result<Defaults> {
    Defaults::read(&root().join(DEFAULTS).join(file))
}

/// Returns all cases by name.
pub fn cases() -> Result<Vec<Case>> {
    let root = root();
    let mut cases = Vec::new();
    for entry in fs::read_dir(&root).with_context(|| format!("cannot list {}", root.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && name != DEFAULTS {
            let directory = entry.path();
            cases.push(Case { name, directory });
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

impl Case {
    /// Returns the committed content of a file, if it exists.
    pub fn committed(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(file)).ok()
    }

    /// Replaces an output file.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the case's objects, and the default objects that it neither replaces nor excludes.
    pub fn input(&self) -> Result<String> {
        let own = self.committed(INPUT).context("no input.yaml")?;
        ensure!(
            own.starts_with("# ") && own.contains("\n# Rule: "),
            "input.yaml must start with a comment that describes the case, followed by `# Rule: ...`"
        );
        let mut absent: BTreeSet<String> = own
            .lines()
            .filter_map(|line| line.strip_prefix(WITHOUT))
            .map(str::to_owned)
            .collect();
        let named: BTreeSet<String> = keys(&own).collect();
        let path = root().join(DEFAULTS).join(INPUT);
        let shared =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut text = own;
        for document in decode::split(&shared) {
            let added =
                keys(document.text).all(|key| !absent.remove(&key) && !named.contains(&key));
            if added && keys(document.text).next().is_some() {
                text.push_str("---\n");
                text.push_str(document.text);
            }
        }
        ensure!(
            absent.is_empty(),
            "`{WITHOUT}` must name objects of _defaults/input.yaml: {absent:?}"
        );
        Ok(text)
    }

    fn options(&self) -> Options {
        let own = self.committed(INPUT).unwrap_or_default();
        Options {
            extra_minimal_ocg: own.lines().any(|line| line == EXTRA_MINIMAL_OCG),
            ..Options::default()
        }
    }

    fn host(&self, gateway: &ResolvedGateway) -> Result<RenderOptions> {
        let own = self.committed(INPUT).unwrap_or_default();
        let place = own.lines().find_map(|line| line.strip_prefix(ACCESS_LOG));
        Ok(RenderOptions {
            access_log: match place {
                None => None,
                Some("stdout") => Some(AccessLogSink::Stdout),
                Some(path) if path.starts_with('/') => Some(AccessLogSink::File(path.into())),
                Some(other) => bail!("`{ACCESS_LOG}{other}`: expected `stdout` or a path"),
            },
            ..host(gateway)
        })
    }

    /// Resolves and renders the case.
    pub fn run(&self) -> Result<Outcome> {
        let (world, refused) = read(&self.input()?);
        let resolution = resolve(&world, &self.options());

        let mut conditions = serde_json::to_value(&resolution.statuses)?;
        if self.name != SHOWS_FEATURES {
            remove_features(&mut conditions);
        }
        let problems = resolution.problems.iter().map(
            |Problem {
                 object,
                 message,
                 hidden_by: _,
             }| format!("{object}: {message}"),
        );
        add(&mut conditions, "problems", problems);
        add(&mut conditions, "refused", refused);

        let mut resources = Vec::new();
        let mut bootstraps = BTreeMap::new();
        for resolved in &resolution.gateways {
            let options = self.host(resolved)?;
            let rendered = sesame_render::render(&resolved.snapshot, &resolved.keys, &options);
            let encoded = EncodedSnapshot::new(&resolved.snapshot, resolved.keys.clone());
            survives_encoding(&resolved.snapshot, &encoded)
                .with_context(|| format!("Gateway {}", resolved.gateway))?;
            ensure!(
                rendered == sesame_render::render_encoded(&encoded, &options),
                "Gateway {}: the encoded snapshot renders differently",
                resolved.gateway
            );
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
                ("conditions.yaml", conditions),
                ("envoy.yaml", resources.into()),
            ]),
            bootstraps,
        })
    }
}

/// Returns an error if an encoding loses data or the snapshot contains a private key.
fn survives_encoding(snapshot: &Snapshot, encoded: &EncodedSnapshot) -> Result<()> {
    ensure!(
        encoded.snapshot() == *snapshot,
        "encoding changes the snapshot"
    );
    let json = sesame_proto::json::to_value(snapshot);
    ensure!(
        !json.to_string().contains("PRIVATE KEY"),
        "the snapshot contains a private key"
    );
    let schema = DescriptorPool::decode(DESCRIPTORS)?;
    let message = schema
        .get_message_by_name("sesame.snapshot.v1alpha1.Snapshot")
        .context("the schema lacks the Snapshot message")?;
    let read = DynamicMessage::deserialize(message, json)?;
    ensure!(
        read.transcode_to::<Snapshot>()? == *snapshot,
        "JSON changes the snapshot"
    );
    Ok(())
}

fn keys(text: &str) -> impl Iterator<Item = String> {
    decode::split(text)
        .into_iter()
        .flat_map(|document| decode::decode(document.text, &DecodeLimits::default()))
        .filter_map(|outcome| Some(outcome.ok()?.object.key().to_string()))
}

/// The host listens on the Gateway's addresses, or on all addresses if the Gateway requests none.
fn host(gateway: &ResolvedGateway) -> RenderOptions {
    let mut addresses: Vec<IpAddr> = gateway
        .snapshot
        .addresses
        .iter()
        .filter_map(|address| address.parse().ok())
        .collect();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::UNSPECIFIED.into());
    }
    options(addresses)
}

/// Decodes the input. Also returns messages about rejected objects and unknown fields.
fn read(input: &str) -> (World, Vec<String>) {
    let mut world = World::default();
    let mut refused = Vec::new();
    for document in decode::split(input) {
        for outcome in decode::decode(document.text, &DecodeLimits::default()) {
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
