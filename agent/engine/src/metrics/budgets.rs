//! Reports host resources that an agent and Envoy may exhaust. Unreadable values must not make a
//! scrape fail.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::scrape::Scrape;
use super::writer::{Families, count, gateway_labels};
use sesame_host::inotify::{self, Budget};
use sesame_host::limits;
use sesame_host::processes::{ProcessorTimes, processor_times};
use sesame_host::reserve::ReserveLevel;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedBudget {
    pub(super) used: u64,
    pub(super) limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnvoyBudgets {
    pub(super) open: UsedBudget,
    /// Number of watched files, each of which needs an inotify instance.
    pub(super) watched: u64,
    /// `None` if the kernel does not record the times.
    pub(super) processor: Option<ProcessorTimes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Budgets {
    /// Counts all processes that the agent can see.
    pub(super) instances: Option<UsedBudget>,
    pub(super) reserve: ReserveLevel,
    /// Files that the agent has open.
    pub(super) open: Option<UsedBudget>,
    pub(super) envoys: BTreeMap<String, EnvoyBudgets>,
}

impl Budgets {
    /// Blocks while the kernel lists the open files of these PIDs.
    pub(super) fn read(envoys: BTreeMap<String, u32>, reserve: ReserveLevel) -> Self {
        let pids: Vec<u32> = envoys.values().copied().collect();
        let Budget {
            limit, others, own, ..
        } = Budget::read(&pids);
        let envoys = envoys.into_iter().filter_map(|(gateway, pid)| {
            let files = EnvoyBudgets {
                open: open_files(&pid.to_string())?,
                watched: inotify::watched_by(pid) as u64,
                processor: processor_times(pid),
            };
            Some((gateway, files))
        });
        Self {
            instances: Some(UsedBudget {
                used: (others + own) as u64,
                limit: limit as u64,
            }),
            reserve,
            open: open_files("self"),
            envoys: envoys.collect(),
        }
    }
}

fn open_files(process: &str) -> Option<UsedBudget> {
    let (limit, used) = limits::files_of(process)?;
    Some(UsedBudget { used, limit })
}

impl Scrape {
    pub(super) fn budgets(&self, families: &mut Families<'_>) -> fmt::Result {
        let Budgets {
            instances,
            reserve: ReserveLevel { held, wanted, .. },
            open,
            envoys,
        } = &self.budgets;
        if let Some(UsedBudget { used, limit }) = *instances {
            let help = "Inotify instances in use by the agent's user, one for each file that an Envoy watches";
            families.single("agent_inotify_instances", help, count(used))?;
            let help = "Inotify instances that the kernel allows this user";
            families.single("agent_inotify_instances_limit", help, count(limit))?;
        }
        let held_and_wanted = [
            (
                "agent_inotify_instances_held",
                "Inotify instances that the agent holds for the next Envoys",
                held,
            ),
            (
                "agent_inotify_instances_wanted",
                "Inotify instances that the next Envoys need; if fewer are held, some are missing",
                wanted,
            ),
        ];
        for (name, help, number) in held_and_wanted {
            families.single(name, help, count(*number as u64))?;
        }
        if let Some(UsedBudget { used, limit }) = *open {
            let help = "Files and sockets that the agent has open";
            families.single("agent_open_files", help, count(used))?;
            let help = "Files and sockets that the agent may have open";
            families.single("agent_open_files_limit", help, count(limit))?;
        }
        let each = |value: fn(&EnvoyBudgets) -> u64| {
            let envoys = envoys.iter();
            envoys.map(move |(name, files)| (gateway_labels(name), count(value(files))))
        };
        let help = "Files and sockets that the Gateway's Envoy has open";
        families.gauge("gateway_envoy_open_files", help, each(|f| f.open.used))?;
        let help = "Files and sockets that the Gateway's Envoy may have open";
        let limits = each(|f| f.open.limit);
        families.gauge("gateway_envoy_open_files_limit", help, limits)?;
        let help = "Files that the Gateway's Envoy watches, each with an inotify instance";
        families.gauge("gateway_envoy_watched_files", help, each(|f| f.watched))?;
        let times = |value: fn(&ProcessorTimes) -> Duration| {
            let envoys = envoys.iter();
            envoys.filter_map(move |(name, one)| {
                let times = one.processor.as_ref()?;
                Some((gateway_labels(name), value(times).as_secs_f64()))
            })
        };
        let help = "Time that the Gateway's Envoy has run on a processor";
        families.counter("gateway_envoy_cpu_seconds", help, times(|it| it.ran))?;
        let help = "Time that the Gateway's Envoy has waited for a processor";
        families.counter(
            "gateway_envoy_cpu_wait_seconds",
            help,
            times(|it| it.waited),
        )
    }
}
