//! Forecasts the cost of a change for Envoy.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use sesame_render::Rendered;
use sesame_render::xds::{Subscription, XdsKind};

use super::plan::{PlanError, Write, plan};
use super::removal::{LeftOver, Removal};

/// Work of Envoy for one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// Files that the agent writes. A list that is written twice counts twice.
    pub files: usize,
    /// Size of these files, in bytes.
    pub bytes: usize,
    /// Subscriptions that are added. Each uses an inotify instance.
    pub new_subscriptions: usize,
    /// Subscriptions that end.
    pub ended_subscriptions: usize,
    /// Estimate of the time that Envoy's main thread needs for the files, in milliseconds. Workers
    /// continue to serve requests.
    pub main_thread_ms: u64,
}

impl Forecast {
    /// Compares two renderings with the options of the same host.
    pub fn new(before: &Rendered, after: &Rendered) -> Result<Self, PlanError> {
        let old = LeftOver::default().beside(before);
        let plan = plan(&old, after, Removal::AtOnce)?;
        let writes = || plan.steps.iter().flat_map(|step| &step.writes);
        let removals = plan.steps.iter().flat_map(|step| &step.removals);
        let added: BTreeSet<&Subscription> = writes()
            .filter(|write| write.new)
            .map(|write| &write.subscription)
            .collect();
        Ok(Self {
            files: writes().count(),
            bytes: writes().map(size).sum(),
            new_subscriptions: added.len(),
            ended_subscriptions: removals.count(),
            main_thread_ms: writes().map(nanoseconds).sum::<u64>().div_ceil(1_000_000),
        })
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            files,
            bytes,
            new_subscriptions,
            ended_subscriptions,
            main_thread_ms,
        } = self;
        write!(
            f,
            "files to write: {files} ({} KiB); file subscriptions: {new_subscriptions} new, \
             {ended_subscriptions} ended; time of Envoy's main thread: about {main_thread_ms} ms",
            bytes.div_ceil(1024)
        )
    }
}

fn size(write: &Write) -> usize {
    write.resources.iter().map(|it| it.bytes.len()).sum()
}

/// Returns the estimate for a file, from CPU times of Envoy 1.40 with 2,000 and 8,000 routes to as
/// many Services, and with 300 listeners.
fn nanoseconds(write: &Write) -> u64 {
    let for_byte = match write.subscription.kind {
        XdsKind::Listeners => 30,
        XdsKind::Clusters => 50,
        XdsKind::RouteTable => 70,
        XdsKind::Endpoints | XdsKind::Secret | XdsKind::Filter => 20,
    };
    // Envoy reads and acknowledges even an empty file.
    300_000 + for_byte * size(write) as u64
}
