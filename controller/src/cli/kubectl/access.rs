//! `kubectl sesame access`: lists the checks that protect each rule, and the rules that are exempt
//! from a check.

use anyhow::Result;
use clap::Args;
use sesame_explain::{RuleAccess, access_of_rules};

use super::reading::ClusterReader;
use super::table::table;

#[derive(Debug, Args)]
pub(super) struct AccessArgs {
    /// Show only rules of routes with this name.
    #[arg(value_name = "ROUTE")]
    name: Option<String>,
    /// Show only unprotected rules; exit with 1 if any exist.
    #[arg(long)]
    unprotected: bool,
    /// Show only rules that are exempt from a check.
    #[arg(long)]
    exempt: bool,
    /// Omit the table headings.
    #[arg(long)]
    no_headers: bool,
}

/// Returns false if unprotected rules were requested and exist.
pub(super) async fn main(reader: &ClusterReader, args: &AccessArgs) -> Result<bool> {
    let AccessArgs {
        name,
        unprotected,
        exempt,
        no_headers,
    } = args;
    let snapshots = reader.all_published().await?;
    let rules = snapshots.iter().flat_map(access_of_rules);
    let is_meant = |rule: &RuleAccess| {
        let Some((namespace, route)) = rule.object() else {
            return false;
        };
        reader.namespace.as_deref().is_none_or(|of| of == namespace)
            && name.as_deref().is_none_or(|name| name == route)
            && (!*unprotected || rule.checks.is_empty())
            && (!*exempt || !rule.exempt_from.is_empty())
    };
    let mut rules: Vec<RuleAccess> = rules.filter(is_meant).collect();
    rules.sort();
    reader.print(&rules, |wide| text(&rules, wide, !no_headers))?;
    Ok(!unprotected || rules.is_empty())
}

fn text(rules: &[RuleAccess], wide: bool, with_headings: bool) -> String {
    let mut headings = vec!["GATEWAY", "RULE", "CHECKS", "EXEMPT FROM"];
    if wide {
        headings.push("HOSTS");
    }
    let rows = rules.iter().map(|rule| {
        let RuleAccess {
            gateway,
            rule,
            hosts,
            checks,
            exempt_from,
        } = rule;
        let mut cells = vec![
            gateway.clone(),
            rule.clone(),
            checks.join(", "),
            exempt_from.join(", "),
        ];
        if wide {
            cells.push(hosts.join(", "));
        }
        cells
    });
    table(&headings, with_headings, rows.collect(), "No rules found.")
}
