//! The hosts that could move, the simplest first. Scripts read the report as JSON, so never remove
//! or rename fields.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;
use sesame_kinds::status::ObjectStatus;
use sesame_proto::terminal::{counted, plain};
use sesame_resolver::Resolution;

use super::copies::HostCopies;

/// Shown for rules without a host.
pub(super) const ANY_HOST: &str = "*";
const MAX_SHOWN: usize = 20;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdoptReport {
    /// IngressClass of the objects that would be created.
    pub(super) class: String,
    /// False if the class is only assumed.
    pub(super) class_exists: bool,
    /// Hosts of Ingresses and HTTPProxies; hosts without losses first, then by number of rules.
    pub(super) hosts: Vec<HostReport>,
    /// Hosts of Envoy Gateway's routes, which must be converted.
    pub(super) converted: Vec<HostReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostReport {
    /// The host, or `*` for all other hosts.
    pub(super) host: String,
    /// The other controller's objects.
    pub(super) objects: BTreeSet<String>,
    /// Number of paths and routes.
    pub(super) rules: usize,
    /// Everything that Sesame would not serve in the same way, sorted.
    pub(super) losses: BTreeSet<AdoptLoss>,
    /// What to know about the objects. Nothing is lost.
    pub(super) notes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdoptLoss {
    /// True if requests get errors or may lose a protection, false if they are served without
    /// another setting.
    pub(super) rejected: bool,
    pub(super) object: String,
    pub(super) message: String,
}

impl HostReport {
    pub(super) fn new(host: &str, copies: &HostCopies, resolved: &Resolution) -> Self {
        let host = if host.is_empty() { ANY_HOST } else { host };
        let mut report = Self {
            host: host.to_owned(),
            objects: copies.originals.values().cloned().collect(),
            rules: copies.rules,
            losses: BTreeSet::new(),
            notes: copies.notes.clone(),
        };
        if host.starts_with('*') {
            report.notes.insert(
                "also answers requests for hosts that have not moved, if it covers them".to_owned(),
            );
        }
        for (rejected, original, message) in &copies.faults {
            report.add(*rejected, original, message);
        }
        let mut missing: BTreeSet<&String> = copies.originals.keys().collect();
        for (kind, name, status) in resolved.statuses.objects() {
            let key = kind.named(name.clone()).to_string();
            if let Some(original) = copies.originals.get(&key) {
                missing.remove(&key);
                report.add_status(original, status);
            }
        }
        for key in missing {
            if let Some(original) = copies.originals.get(key) {
                report.add(true, original, "is not served");
            }
        }
        for problem in &resolved.problems {
            if let Some(original) = copies.originals.get(&problem.object.to_string()) {
                report.add(false, original, &problem.message);
            }
        }
        report
    }

    fn add_status(&mut self, original: &str, status: ObjectStatus<'_>) {
        let details = match status {
            ObjectStatus::Route(route) => route.details.as_slice(),
            _ => &[],
        };
        for detail in details {
            self.add(!detail.warning, original, &detail.message);
        }
        if !details.is_empty() {
            // The conditions only summarize the details.
            return;
        }
        for (_, conditions) in status.sections() {
            for condition in conditions.iter().filter(|it| it.is_fault()) {
                self.add(true, original, &condition.message);
            }
        }
    }

    pub(super) fn add(&mut self, rejected: bool, object: &str, message: &str) {
        let loss = |rejected: bool| AdoptLoss {
            rejected,
            object: object.to_owned(),
            message: message.to_owned(),
        };
        // The same message may come from a condition and a problem.
        if rejected {
            self.losses.remove(&loss(false));
        }
        if rejected || !self.losses.contains(&loss(true)) {
            self.losses.insert(loss(rejected));
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.losses.is_empty()
    }
}

impl AdoptReport {
    pub(super) fn sort(&mut self) {
        for rows in [&mut self.hosts, &mut self.converted] {
            rows.sort_by(|a, b| {
                // Traffic for all other hosts should move last.
                let key = |it: &HostReport| {
                    let is_any = it.host == ANY_HOST;
                    (is_any, it.losses.len(), it.rules, it.host.clone())
                };
                key(a).cmp(&key(b))
            });
        }
    }
}

pub(super) fn adopt_text(report: &AdoptReport) -> String {
    let mut text = String::new();
    let rows = report.hosts.iter().chain(&report.converted);
    let (ready, lossy): (Vec<_>, Vec<_>) = rows.partition(|it| it.is_ready());
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} without a loss, the simplest first",
        counted(ready.len(), "host")
    );
    for row in &ready {
        let _ = writeln!(text, "  {}", row_text(row));
        text.push_str(&notes_text(row));
    }
    let _ = writeln!(text, "{} with a loss", counted(lossy.len(), "host"));
    for row in &lossy {
        let _ = writeln!(text, "  {}", row_text(row));
        text.push_str(&losses_text(row));
        text.push_str(&notes_text(row));
    }
    let first = report.hosts.iter().find(|it| it.is_ready());
    if let Some(first) = first {
        let (host, class) = (plain(&first.host), plain(&report.class));
        let exists = if report.class_exists {
            ""
        } else {
            " (create this IngressClass first)"
        };
        let _ = writeln!(
            text,
            "to serve {host} with class {class}{exists}:\n  kubectl sesame adopt --class {class} '{host}' | kubectl apply -f -"
        );
    }
    if !report.converted.is_empty() {
        text.push_str(
            "to convert Envoy Gateway's objects: sesame-controller convert --from envoy-gateway\n",
        );
    }
    text
}

fn row_text(row: &HostReport) -> String {
    let HostReport {
        host,
        objects,
        rules,
        losses: _,
        notes: _,
    } = row;
    let shown: Vec<String> = objects.iter().take(MAX_SHOWN).map(|it| plain(it)).collect();
    let more = if objects.len() > MAX_SHOWN {
        ", …"
    } else {
        ""
    };
    let rules = counted(*rules, "rule");
    format!("{} ({rules}; {}{more})", plain(host), shown.join(", "))
}

pub(super) fn losses_text(row: &HostReport) -> String {
    let mut text = String::new();
    for loss in row.losses.iter().rev().take(MAX_SHOWN) {
        let AdoptLoss {
            rejected,
            object,
            message,
        } = loss;
        let effect = if *rejected { "rejected" } else { "differs" };
        let line = plain(&format!("{effect}: {object}: {message}"));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    {line}");
    }
    let more = row.losses.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "    {more} more");
    }
    text
}

fn notes_text(row: &HostReport) -> String {
    let mut text = String::new();
    for note in row.notes.iter().take(MAX_SHOWN) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    note: {}", plain(note));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(host: &str, faults: &[(bool, &str)]) -> HostReport {
        let faults = faults.iter().map(|(rejected, message)| {
            (*rejected, "Ingress/a/b".to_owned(), (*message).to_owned())
        });
        let copies = HostCopies {
            faults: faults.collect(),
            ..HostCopies::default()
        };
        HostReport::new(host, &copies, &Resolution::default())
    }

    #[test]
    fn loss_is_listed_once() {
        let row = report("a.test", &[(false, "x"), (true, "x"), (false, "y")]);
        let losses: Vec<(bool, &str)> = row
            .losses
            .iter()
            .map(|it| (it.rejected, &*it.message))
            .collect();
        assert_eq!(losses, [(false, "y"), (true, "x")]);
        assert!(!row.is_ready());
    }

    #[test]
    fn all_other_hosts_are_listed_last() {
        let mut listed = AdoptReport {
            class: "edge".to_owned(),
            class_exists: true,
            hosts: vec![report("", &[]), report("lossy.test", &[(true, "x")])],
            converted: Vec::new(),
        };
        listed.sort();
        assert_eq!(listed.hosts[1].host, ANY_HOST);
        assert!(adopt_text(&listed).contains("note: also answers"));
    }
}
