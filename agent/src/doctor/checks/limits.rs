//! Checks of kernel and control group limits.

use sesame_render::limits::{Limits, heap_of};

use crate::doctor::facts::{HostFacts, InotifyFacts};
use crate::doctor::{FindingSeverity, HostFinding};
use sesame_host::reserve::MAX_HELD;

/// Recommended minimum of inotify instances. Fewer are enough only for a few Gateways and backends.
const USUAL_INSTANCES: usize = 1024;
/// Number of inotify instances that is enough for thousands of backends.
const MANY_INSTANCES: usize = 8192;
/// Recommended minimum of inotify watches. With fewer, the agent may have to poll large manifest
/// directories.
const USUAL_WATCHES: usize = 8192;
/// Recommended minimum of memory in bytes. With less, Envoy and the agent may run out of memory.
const USUAL_MEMORY: u64 = 256 << 20;
/// Recommended minimum of open files. With fewer, Envoy can serve only a few connections.
const USUAL_FILES: u64 = 65_536;

pub(super) fn all(facts: &HostFacts) -> Vec<HostFinding> {
    vec![
        instances(facts),
        watches(facts),
        memory(facts),
        tasks(facts),
        open_files(facts),
    ]
}

fn instances(facts: &HostFacts) -> HostFinding {
    let InotifyFacts {
        instances,
        each,
        wanted,
        used,
        held,
        watches: _,
    } = facts.inotify;
    let for_next = used.min(MAX_HELD);
    let lacking = held.filter(|held| *held < for_next);
    let found = format!(
        "fs.inotify.max_user_instances is {instances}: {each} files for each of two Envoys; each needs {wanted}{}",
        lacking.map_or_else(String::new, |held| format!(
            "; the agent has reserved {held} instances for the next Envoys, which need {for_next}"
        ))
    );
    let finding = |weight| HostFinding::new("inotify-instances", weight, found.clone());
    // During a hot restart, two Envoy processes watch `wanted` files each. Leave the same number of
    // instances for other processes.
    let enough = (3 * wanted).next_power_of_two().max(MANY_INSTANCES);
    let short = |weight| {
        finding(weight)
            .expected(format!(
                "{enough}; with fewer, objects share files, which slows updates"
            ))
            .remedy(format!(
                "sysctl -w fs.inotify.max_user_instances={enough}, then restart the agent"
            ))
    };
    match each {
        each if each < 2 => short(FindingSeverity::Error),
        each if each < wanted || instances < USUAL_INSTANCES || lacking.is_some() => {
            short(FindingSeverity::Warning)
        }
        _ => finding(FindingSeverity::Ok),
    }
}

fn watches(facts: &HostFacts) -> HostFinding {
    let watches = facts.inotify.watches;
    let found = format!("fs.inotify.max_user_watches is {watches}");
    if watches >= USUAL_WATCHES {
        return HostFinding::ok("inotify-watches", found);
    }
    HostFinding::warning("inotify-watches", found)
        .expected("1048576; directories that cannot be watched are polled")
        .remedy("sysctl -w fs.inotify.max_user_watches=1048576")
}

fn memory(facts: &HostFacts) -> HostFinding {
    let (memory, heap) = (
        facts.memory,
        facts.heap.unwrap_or_else(|| heap_of(facts.memory)),
    );
    let found = format!(
        "{} MiB, of which an Envoy may use {} MiB",
        memory >> 20,
        heap >> 20
    );
    let finding = |weight| HostFinding::new("memory", weight, found.clone());
    if heap > memory {
        finding(FindingSeverity::Error)
            .expected("a heap limit below the control group's memory limit; otherwise Envoy is OOM-killed before it sheds load")
            .remedy(format!("set `envoy-heap-mib: {}`, or a larger MemoryMax= in the unit", heap_of(memory) >> 20))
    } else if memory < USUAL_MEMORY {
        finding(FindingSeverity::Warning)
            .expected(format!("{} MiB", USUAL_MEMORY >> 20))
            .remedy("set a larger MemoryMax= in the unit")
    } else {
        finding(FindingSeverity::Ok)
    }
}

/// Checks that the control group's task limit leaves room for the threads of two Envoy processes.
fn tasks(facts: &HostFacts) -> HostFinding {
    let needed = 2
        * (u64::try_from(facts.cores)
            .unwrap_or(u64::MAX)
            .saturating_add(16));
    let Some((most, used)) = facts.tasks else {
        return HostFinding::ok("tasks", "the control group has no limit");
    };
    let found = format!("{used} of {most} tasks are used in the control group");
    if most.saturating_sub(used) >= needed {
        return HostFinding::ok("tasks", found);
    }
    HostFinding::error("tasks", found)
        .expected(format!(
            "room for {needed} more tasks: the threads of two Envoys"
        ))
        .remedy("set a larger TasksMax= in the unit")
}

fn open_files(facts: &HostFacts) -> HostFinding {
    let files = facts.open_files;
    let found = format!("{files} open files per process");
    let remedy = "set LimitNOFILE=1048576 in the units, or raise `ulimit -Hn` for the process that starts the agent";
    match Limits::new(files, facts.heap.unwrap_or_else(|| heap_of(facts.memory))) {
        Err(why) => HostFinding::error("open-files", format!("{found}: {why}"))
            .expected("1048576")
            .remedy(remedy),
        Ok(limits) if files < USUAL_FILES => HostFinding::warning(
            "open-files",
            format!(
                "{found}, enough for {} client connections",
                limits.from_clients
            ),
        )
        .expected("1048576")
        .remedy(remedy),
        Ok(_) => HostFinding::ok("open-files", found),
    }
}
