//! `kubectl sesame adopt`: shows which hosts of other controllers could move to Sesame, and prints
//! the objects that move a host. Never writes to the cluster.
//!
//! The objects are copies with Sesame's class. Those of each host are resolved as if only they were
//! applied.

mod annotations;
mod converted;
mod copies;
mod older;
mod preview;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use sesame_kinds::world::Kind;
use sesame_resolver::INGRESS_CONTROLLER;

use self::copies::{ForeignObjects, HostCopies, text};
use self::report::{AdoptReport, HostReport, adopt_text};
use super::diff::{self, print_note};
use super::reading::{ClusterReader, Listed};

#[derive(Debug, Args)]
pub(super) struct AdoptArgs {
    /// Print the objects that make Sesame serve these hosts, for `kubectl apply -f -`; to revert,
    /// pass them to `kubectl delete -f -`. Without hosts, show all hosts.
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    /// Sesame's IngressClass for the objects; defaults to the only one. If it does not exist, one
    /// that reads annotations of ingress-nginx is assumed.
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// The controller's own SesameConfiguration; defaults if unset.
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Print objects even if Sesame would serve them differently.
    #[arg(long, requires = "hosts")]
    accept_loss: bool,
}

/// Returns true if each host could move without a loss.
pub(super) async fn main(reader: &ClusterReader, args: &AdoptArgs) -> Result<bool> {
    let mut foreign = ForeignObjects {
        classes: list(reader, Kind::IngressClass).await?,
        ingresses: list(reader, Kind::Ingress).await?,
        proxies: list(reader, Kind::HttpProxy).await?,
    };
    let ours = foreign.classes.iter();
    let ours = ours.filter(|it| text(it, "/spec/controller") == INGRESS_CONTROLLER);
    let ours: BTreeSet<String> = ours
        .map(|it| text(it, "/metadata/name").to_owned())
        .collect();
    let class = match (&args.class, ours.first()) {
        (Some(class), _) => class.clone(),
        (None, Some(only)) if ours.len() == 1 => only.clone(),
        (None, None) => "sesame".to_owned(),
        (None, Some(_)) => {
            let names: Vec<&str> = ours.iter().map(String::as_str).collect();
            bail!("--class is missing; expected one of {}", names.join(", "));
        }
    };
    let assumed = !ours.contains(&class);
    let is_other = foreign
        .classes
        .iter()
        .any(|it| text(it, "/metadata/name") == class);
    ensure!(
        !assumed || !is_other,
        "--class {class}: this IngressClass belongs to another controller; expected one of \
         {INGRESS_CONTROLLER}, or a new name"
    );
    foreign.retain_foreign(&ours);
    let hosts = foreign.by_host(&class)?;
    let configuration = diff::configuration(args.config.as_deref())?;
    let preview = preview::read(reader, configuration, assumed.then_some(&*class), &hosts).await?;
    let mut report = AdoptReport {
        class,
        class_exists: !assumed,
        hosts: Vec::new(),
        converted: converted::read(reader).await?,
    };
    for (host, copies) in &hosts {
        let resolved = preview.resolve(copies);
        report.hosts.push(HostReport::new(host, copies, &resolved));
    }
    report.sort();
    if args.hosts.is_empty() {
        reader.print(&report, |_| adopt_text(&report))?;
        let mut rows = report.hosts.iter().chain(&report.converted);
        return Ok(rows.all(HostReport::is_ready));
    }
    print_objects(reader, args, &hosts, &report)?;
    Ok(true)
}

fn print_objects(
    reader: &ClusterReader,
    args: &AdoptArgs,
    hosts: &BTreeMap<String, HostCopies>,
    report: &AdoptReport,
) -> Result<()> {
    let mut objects: Vec<&Value> = Vec::new();
    let wanted: BTreeSet<&String> = args.hosts.iter().collect();
    for host in wanted {
        let shown = report.hosts.iter().find(|it| it.host == *host);
        let shown = shown.with_context(|| {
            format!("host {host:?} is not a host of another controller's Ingress or HTTPProxy")
        })?;
        ensure!(
            args.accept_loss || shown.is_ready(),
            "{host} would lose something; see `kubectl sesame adopt`, or use --accept-loss:\n{}",
            report::losses_text(shown)
        );
        for note in &shown.notes {
            print_note(note);
        }
        let key = if host == report::ANY_HOST { "" } else { host };
        let copies = hosts.get(key).map(|it| it.copies.as_slice());
        objects.extend(copies.unwrap_or_default());
    }
    if !report.class_exists {
        print_note(&format!(
            "IngressClass {} does not exist; create it before you apply the objects",
            report.class
        ));
    }
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let mut yaml = String::new();
    for object in &objects {
        yaml.push_str("---\n");
        yaml.push_str(&serde_saphyr::to_string(object)?);
    }
    reader.print(&list, |_| yaml)
}

/// Returns nothing if the kind does not exist.
async fn list(reader: &ClusterReader, kind: Kind) -> Result<Vec<Value>> {
    match reader.list(kind, None).await? {
        Listed::Missing => Ok(Vec::new()),
        Listed::Refused(why) => bail!("{kind} cannot be listed: {why}"),
        Listed::Objects(version, objects) => {
            let mut objects = objects;
            // The API server omits the types of list items.
            for object in &mut objects {
                object["apiVersion"] = version.into();
                object["kind"] = kind.as_str().into();
            }
            Ok(objects)
        }
    }
}
