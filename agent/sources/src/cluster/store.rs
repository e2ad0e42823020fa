//! Stores the cluster objects that this host uses, and requests missing ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use sesame_kinds::api::NamespacedName;
use sesame_published::names::{FLEET_LABEL, Part, gateway_id};
use tokio::sync::watch;

use super::assembler::RevisionAssembler;
use super::backoff::jittered;
use super::connect::ClusterSettings;
use super::fetch::{Fetched, fetch, fetch_manifest};
use super::fetch_state::FetchState;
use super::follow::ClusterEvent;
use super::pieces::part;
use super::problems::{MAX_GATEWAYS, too_many, unpublished, unserved};
use crate::problem::SourceProblem;
use crate::update::SourceUpdate;

pub(super) struct ClusterStore {
    host: Arc<str>,
    settings: ClusterSettings,
    clients: watch::Sender<Option<Client>>,
    /// By the value of the Gateway label.
    gateways: BTreeMap<String, FetchState>,
    work: FuturesUnordered<BoxFuture<'static, Finished>>,
    away: Option<String>,
    listed: bool,
    /// Objects that are ignored because there are too many Gateways.
    refused: Vec<SourceProblem>,
    /// Labels of Gateways whose pieces have changed.
    touched: BTreeSet<String>,
    changed: bool,
}

struct Finished {
    id: String,
    round: u64,
    outcome: Outcome,
}

enum Outcome {
    Fetched(Fetched),
    Paused,
    LookedFor(Result<Option<Box<ConfigMap>>, String>),
}

impl ClusterStore {
    /// `known` contains the Gateways that the host already served.
    pub(super) fn new(
        settings: ClusterSettings,
        clients: watch::Sender<Option<Client>>,
        known: &[NamespacedName],
    ) -> Self {
        let host: Arc<str> = Arc::from(settings.host.as_str());
        let ours = known
            .iter()
            .filter(|gateway| settings.gateways.is_empty() || settings.gateways.contains(gateway));
        Self {
            gateways: ours
                .map(|gateway| {
                    (
                        gateway_id(gateway),
                        FetchState::of(RevisionAssembler::of(gateway, &settings.trusted, &host)),
                    )
                })
                .collect(),
            host,
            settings,
            clients,
            work: FuturesUnordered::new(),
            away: None,
            listed: false,
            refused: Vec::new(),
            touched: BTreeSet::new(),
            changed: false,
        }
    }

    /// Waits forever if nothing is in progress.
    pub(super) async fn work(&mut self) {
        match self.work.next().await {
            Some(done) => self.done(done),
            None => std::future::pending().await,
        }
    }

    /// Only marks Gateways as changed, because events arrive in bursts. [`Self::update`] advances
    /// them later.
    pub(super) fn handle(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Listed(objects) => {
                self.list(&objects);
                self.listed = true;
                self.changed = true;
                self.back();
            }
            ClusterEvent::Changed(object) => {
                let id = self.object(&object);
                self.touched.extend(id);
            }
            ClusterEvent::Deleted(object) => self.gone(&object),
            ClusterEvent::Lost(reason) => {
                let reason = format!("cannot watch the cluster: {reason}");
                self.changed |= self.away.as_ref() != Some(&reason);
                if self.away.is_none() {
                    tracing::warn!("{reason}; serving the last known configuration");
                }
                self.away = Some(reason);
            }
            ClusterEvent::Back => {
                if self.listed {
                    self.back();
                }
            }
        }
    }

    fn back(&mut self) {
        if self.away.take().is_some() {
            tracing::info!("watching the cluster again");
            self.changed = true;
            let entries = self.gateways.iter_mut();
            let resumed = entries.filter_map(|(id, entry)| entry.resume().then(|| id.clone()));
            self.touched.extend(resumed);
        }
    }

    fn list(&mut self, objects: &[ConfigMap]) {
        let mut manifests = BTreeSet::new();
        let mut live: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        self.refused.clear();
        for object in objects {
            match part(object) {
                Some((id, _, Part::Manifest)) => {
                    manifests.insert(id);
                }
                Some((id, name, Part::Endpoints)) => {
                    live.entry(id).or_default().insert(name.to_owned());
                }
                _ => {}
            }
        }
        let nothing = BTreeSet::new();
        for (id, entry) in &mut self.gateways {
            let there = live.get(id.as_str()).unwrap_or(&nothing);
            entry.assembler.retain_live(there);
        }
        // Apply all objects before advancing any Gateway, because the order of a list is arbitrary.
        let touched: BTreeSet<String> = objects.iter().filter_map(|o| self.object(o)).collect();
        for id in &touched {
            self.advance(id);
        }
        let unseen: Vec<String> = self
            .gateways
            .iter()
            .filter(|(id, entry)| {
                entry.assembler.gateway().is_some() && !manifests.contains(id.as_str())
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in unseen {
            self.doubt(&id);
        }
    }

    fn object(&mut self, object: &ConfigMap) -> Option<String> {
        let (id, name, part) = part(object)?;
        if !self.gateways.contains_key(id) && self.gateways.len() >= MAX_GATEWAYS {
            self.refuse(name);
            return None;
        }
        let (trusted, host) = (&self.settings.trusted, &self.host);
        let entry = self
            .gateways
            .entry(id.to_owned())
            .or_insert_with(|| FetchState::of(RevisionAssembler::new(trusted, host)));
        match part {
            Part::Manifest => {
                entry.assembler.set_manifest(id, object);
                entry.begin_round();
                entry.record_receipt(object);
            }
            Part::Endpoints => entry.assembler.set_live(name, object),
            Part::Config | Part::Keys => return None,
        }
        Some(id.to_owned())
    }

    fn gone(&mut self, object: &ConfigMap) {
        match part(object) {
            Some((id, _, Part::Manifest)) => {
                let id = id.to_owned();
                self.doubt(&id);
            }
            Some((id, name, Part::Endpoints)) => {
                if let Some(entry) = self.gateways.get_mut(id) {
                    entry.assembler.drop_live(name);
                    if entry.assembler.is_empty() {
                        self.gateways.remove(id);
                    }
                }
            }
            _ => {}
        }
    }

    fn advance(&mut self, id: &str) {
        let Some(entry) = self.gateways.get_mut(id) else {
            return;
        };
        self.changed = true;
        // Decompression and digests are slow, so do not block other tasks.
        let need = tokio::task::block_in_place(|| entry.assembler.advance());
        let (Some(need), Some(gateway), false) = (need, entry.assembler.gateway(), entry.busy)
        else {
            return;
        };
        let Some(client) = self.clients.borrow().clone() else {
            return;
        };
        let (gateway, namespace) = (gateway.clone(), self.settings.namespace.clone());
        let (id, round) = (id.to_owned(), entry.round);
        entry.busy = true;
        self.work.push(Box::pin(async move {
            let outcome = Outcome::Fetched(fetch(client, &namespace, &gateway, need).await);
            Finished { id, round, outcome }
        }));
    }

    /// Confirms that a manifest is gone before its Gateway is withdrawn.
    fn doubt(&mut self, id: &str) {
        let Some(entry) = self.gateways.get_mut(id) else {
            return;
        };
        let (Some(gateway), Some(client), false) = (
            entry.assembler.gateway().cloned(),
            self.clients.borrow().clone(),
            entry.doubted,
        ) else {
            return;
        };
        entry.doubted = true;
        let namespace = self.settings.namespace.clone();
        let (id, round) = (id.to_owned(), entry.round);
        let pause = jittered(entry.backoff.next_pause());
        self.work.push(Box::pin(async move {
            let found = fetch_manifest(client, &namespace, &gateway).await;
            if found.is_err() {
                tokio::time::sleep(pause).await;
            }
            let outcome = Outcome::LookedFor(found.map(|found| found.map(Box::new)));
            Finished { id, round, outcome }
        }));
    }

    fn done(&mut self, done: Finished) {
        let Finished { id, round, outcome } = done;
        let Some(entry) = self.gateways.get_mut(&id) else {
            return;
        };
        match outcome {
            Outcome::Fetched(fetched) => {
                if entry.round != round {
                    return;
                }
                let failed = !fetched.faults.is_empty();
                entry.assembler.absorb(fetched);
                if failed {
                    let pause = jittered(entry.backoff.next_pause());
                    entry.paused = true;
                    self.work.push(Box::pin(async move {
                        tokio::time::sleep(pause).await;
                        Finished {
                            id,
                            round,
                            outcome: Outcome::Paused,
                        }
                    }));
                    // During the backoff, fetch nothing, but report the missing pieces.
                    entry.assembler.advance();
                    self.changed = true;
                    return;
                }
                entry.busy = false;
                self.advance(&id);
            }
            Outcome::Paused => {
                if entry.round == round {
                    (entry.busy, entry.paused) = (false, false);
                    self.advance(&id);
                }
            }
            Outcome::LookedFor(found) => {
                if entry.round != round || !entry.doubted {
                    return;
                }
                entry.doubted = false;
                self.manifest_fetched(&id, found);
            }
        }
    }

    fn manifest_fetched(&mut self, id: &str, found: Result<Option<Box<ConfigMap>>, String>) {
        match found {
            Ok(Some(object)) if self.is_ours(id, &object) => {
                self.object(&object);
                self.advance(id);
            }
            Ok(found) => {
                if let Some(entry) = self.gateways.get_mut(id) {
                    let gateway = entry.assembler.gateway().map(ToString::to_string);
                    let gateway = gateway.unwrap_or_default();
                    let why = match found {
                        Some(_) => "its manifest is now for other hosts",
                        None => "its manifest was deleted",
                    };
                    tracing::info!(%gateway, "withdrawing the Gateway: {why}");
                    entry.begin_round();
                    if !entry.assembler.withdraw() {
                        self.gateways.remove(id);
                    }
                }
                self.changed = true;
            }
            Err(error) => {
                let doubt = format!(
                    "cannot confirm that the Gateway was withdrawn, so the Gateway is still served: {error}"
                );
                if let Some(entry) = self.gateways.get_mut(id) {
                    entry.assembler.doubt(doubt);
                }
                self.advance(id);
                self.doubt(id);
            }
        }
    }

    fn is_ours(&self, id: &str, object: &ConfigMap) -> bool {
        let labels = object.metadata.labels.as_ref();
        let fleet = labels.and_then(|labels| labels.get(FLEET_LABEL));
        let gateway = self
            .gateways
            .get(id)
            .and_then(|entry| entry.assembler.gateway());
        let same =
            part(object).is_some_and(|(label, _, part)| label == id && part == Part::Manifest);
        same && gateway.is_some_and(|g| self.settings.accepts(g, fleet.map(String::as_str)))
    }

    fn refuse(&mut self, name: &str) {
        let problem = too_many(&self.settings.namespace, name);
        if self.refused.len() < 10 && !self.refused.contains(&problem) {
            self.refused.push(problem);
            self.changed = true;
        }
    }

    pub(super) fn update(&mut self) -> Option<SourceUpdate> {
        for id in std::mem::take(&mut self.touched) {
            self.advance(&id);
        }
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let entries = self.gateways.values();
        let mut receipts = BTreeMap::new();
        let gateways: BTreeMap<_, _> = entries
            .filter_map(|entry| entry.update(&mut receipts))
            .collect();
        let mut problems = self.refused.clone();
        problems.extend(unserved(&gateways));
        for gateway in &self.settings.gateways {
            let entry = self.gateways.get(&gateway_id(gateway));
            if self.listed && !entry.is_some_and(|entry| entry.assembler.has_manifest()) {
                problems.push(unpublished(&self.settings.namespace, gateway));
            }
        }
        Some(SourceUpdate {
            away: self.away.clone(),
            gateways,
            lists_all: self.listed,
            problems,
            cause: "a change in the cluster".to_owned(),
            receipts,
        })
    }
}
