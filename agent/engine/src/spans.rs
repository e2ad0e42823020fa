//! Exports spans for changes on this host. Spans must never delay a change. They continue a
//! controller's trace, or start a new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sesame_kinds::api::NamespacedName;
use sesame_kinds::world::ObjectKey;
use sesame_spans::{ChangeTrace, SpanId, Spans, TraceId};

use super::metrics::ApplyOutcome;
use super::target::{Target, Targets};
use sesame_apply::{ApplyReport, StepReport};
use sesame_sources::update::Receipt;

const MAX_NAMED: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct TargetTimes {
    gateway: NamespacedName,
    host: String,
    /// `None` if the trace starts here.
    version: Option<u64>,
    /// Names of some changed objects, and the total number.
    objects: (Vec<String>, usize),
    seen: SystemTime,
    taken: SystemTime,
    resolved: Option<SystemTime>,
    rendered: SystemTime,
}

#[derive(Debug)]
pub(super) struct EngineTimes {
    spans: Spans,
    seen: SystemTime,
    taken: SystemTime,
    resolved: Option<SystemTime>,
}

impl EngineTimes {
    /// Has no effect without a collector.
    pub(super) fn new(spans: Spans) -> Self {
        Self {
            spans,
            seen: SystemTime::UNIX_EPOCH,
            taken: SystemTime::UNIX_EPOCH,
            resolved: None,
        }
    }

    /// `seen` is when the change was noticed.
    pub(super) fn begin_change(&mut self, seen: SystemTime) {
        self.seen = seen;
        self.taken = SystemTime::now();
        self.resolved = None;
    }

    pub(super) fn read(&mut self) {
        self.taken = SystemTime::now();
    }

    pub(super) fn resolved(&mut self) {
        self.resolved = Some(SystemTime::now());
    }

    /// Used for changes that did not come from a cluster.
    pub(super) fn rendered_here(&self, before: &Targets, now: &Targets, objects: &[ObjectKey]) {
        self.rendered(before, now, &BTreeMap::new(), objects);
    }

    pub(super) fn rendered(
        &self,
        before: &Targets,
        targets: &Targets,
        receipts: &BTreeMap<NamespacedName, Receipt>,
        objects: &[ObjectKey],
    ) {
        if !self.spans.is_on() {
            return;
        }
        let named = objects.iter().take(MAX_NAMED).map(ToString::to_string);
        let named: Vec<String> = named.collect();
        let rendered = SystemTime::now();
        for (gateway, target) in targets {
            if before
                .get(gateway)
                .is_some_and(|old| Arc::ptr_eq(old, target))
            {
                continue;
            }
            let receipt = receipts.get(gateway);
            let times = TargetTimes {
                gateway: gateway.clone(),
                host: self.spans.host().to_owned(),
                version: receipt.map(|receipt| receipt.version),
                objects: (named.clone(), objects.len()),
                seen: receipt.map_or(self.seen, |receipt| receipt.seen),
                taken: self.taken,
                resolved: self.resolved,
                rendered,
            };
            target.record_times(times);
        }
    }
}

impl TargetTimes {
    fn id(&self) -> TraceId {
        let Self {
            gateway,
            host,
            version,
            seen,
            ..
        } = self;
        TraceId::of_host(&format!("{gateway} {version:?}"), host, *seen)
    }

    fn trace(&self, revision: &str) -> ChangeTrace {
        let gateway = self.gateway.to_string();
        let id = match self.version {
            Some(version) => TraceId::of_publication(&gateway, revision, version),
            None => self.id(),
        };
        ChangeTrace::new(id, &self.host, &gateway, revision)
    }

    fn parent(&self, trace: &ChangeTrace) -> SpanId {
        match self.version {
            Some(_) => trace.span_id("host", self.seen),
            None => trace.id().root(),
        }
    }
}

pub(super) struct ApplyTry<'a> {
    pub(super) began: SystemTime,
    pub(super) outcome: ApplyOutcome,
    /// `None` if Envoy did not accept the target.
    pub(super) report: Option<&'a ApplyReport>,
    pub(super) failure: Option<String>,
    /// True if this target will not be tried again.
    pub(super) is_last: bool,
}

pub(super) struct InstanceSpans {
    spans: Spans,
    /// Trace of the last exported target, so that applying it again does not export it again.
    exported: Option<TraceId>,
}

impl InstanceSpans {
    /// Has no effect without a collector.
    pub(super) fn new(spans: Spans) -> Self {
        Self {
            spans,
            exported: None,
        }
    }

    pub(super) fn skip(&mut self, target: &Target) {
        self.exported = target.times().map(TargetTimes::id);
    }

    /// After the last attempt, also exports spans for all earlier stages of the change.
    pub(super) fn export(&mut self, target: &Target, tried: &ApplyTry<'_>) {
        let Some(times) = target.times().filter(|_| self.spans.is_on()) else {
            return;
        };
        if self.exported == Some(times.id()) {
            return;
        }
        let ApplyTry {
            began,
            outcome,
            report,
            failure,
            is_last,
        } = tried;
        let ended = SystemTime::now();
        let trace = times.trace(target.reported_revision());
        let parent = times.parent(&trace);
        let span = trace.span("apply", parent, (*began, ended));
        let apply = span.id();
        let span = span.text("sesame.outcome", outcome.as_str());
        self.spans.send(span.failed(failure.as_deref()));
        for step in report.iter().flat_map(|report| &report.steps) {
            self.step(&trace, apply, step);
        }
        if *is_last {
            self.exported = Some(times.id());
            self.begin(times, &trace, (*began, ended), failure.as_deref());
        }
    }

    fn step(&self, trace: &ChangeTrace, parent: SpanId, step: &StepReport) {
        let StepReport {
            phase,
            writes,
            began,
            until_renamed,
            until_accepted,
        } = step;
        let at = |after: Duration| wall_time(*began + after);
        let (start, renamed) = (at(Duration::ZERO), at(*until_renamed));
        let phase = phase.as_str();
        let write = trace.span(&format!("write {phase}"), parent, (start, renamed));
        self.spans.send(write.number("sesame.writes", *writes));
        let accepted = at(*until_accepted);
        let verify = format!("verify {phase}");
        self.spans
            .send(trace.span(&verify, parent, (renamed, accepted)));
    }

    fn begin(
        &self,
        times: &TargetTimes,
        trace: &ChangeTrace,
        (began, ended): (SystemTime, SystemTime),
        failure: Option<&str>,
    ) {
        let TargetTimes {
            gateway: _,
            host: _,
            version,
            objects: (named, count),
            seen,
            taken,
            resolved,
            rendered,
        } = times;
        let parent = times.parent(trace);
        let whole = if version.is_some() {
            trace.span("host", trace.id().root(), (*seen, ended))
        } else {
            let root = trace.root((*seen, ended));
            let root = root.number("sesame.changes", *count);
            let first = named.iter().take(1);
            first.fold(root, |root, object| root.text("sesame.object", object))
        };
        self.spans.send(whole.failed(failure));
        for object in named {
            self.spans.send(trace.object(object, (*seen, *taken)));
        }
        let mut from = *taken;
        self.spans
            .send(trace.span("receive", parent, (*seen, from)));
        if let Some(resolved) = resolved {
            self.spans
                .send(trace.span("resolve", parent, (from, *resolved)));
            from = *resolved;
        }
        self.spans
            .send(trace.span("render", parent, (from, *rendered)));
        self.spans
            .send(trace.span("wait", parent, (*rendered, began)));
    }
}

#[cfg(feature = "cluster")]
pub(super) struct ReportSpans {
    spans: Spans,
    exported: BTreeMap<NamespacedName, TraceId>,
}

#[cfg(feature = "cluster")]
impl ReportSpans {
    /// Has no effect without a collector.
    pub(super) fn new(spans: Spans) -> Self {
        Self {
            spans,
            exported: BTreeMap::new(),
        }
    }

    /// `accepted` is when Envoy accepted the target.
    pub(super) fn export(&mut self, target: &Target, accepted: SystemTime) {
        let Some(times) = target.times().filter(|_| self.spans.is_on()) else {
            return;
        };
        let before = self.exported.insert(times.gateway.clone(), times.id());
        if before == Some(times.id()) {
            return;
        }
        let trace = times.trace(target.reported_revision());
        let parent = times.parent(&trace);
        let now = SystemTime::now();
        self.spans
            .send(trace.span("report", parent, (accepted, now)));
    }
}

fn wall_time(moment: Instant) -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(moment.elapsed()).unwrap_or(now)
}
