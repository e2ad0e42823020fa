//! Resolves the backendRefs of a rule to weighted backends.

use sesame_proto::schema;

use super::rules::{RuleContext, RuleReferences};
use crate::backends::{BackendTarget, ResolvedRef, Traffic};
use crate::filters::rewrites::BackendRewrites;
use crate::filters::{self, BackendFilters};
use crate::syntax::limits;
use sesame_kinds::api::BackendRef;
use sesame_kinds::status::{Grounds, Reason};

#[derive(Debug, Default)]
pub(crate) struct BackendShares<'w> {
    /// The backend name is empty if the reference is invalid or not permitted.
    pub(crate) backends: Vec<schema::WeightedBackend>,
    pub(crate) references: RuleReferences<'w>,
    pub(crate) unsupported: Vec<String>,
}

impl<'w> RuleContext<'_, 'w, '_> {
    pub(super) fn shares(
        &mut self,
        index: usize,
        references: &'w [BackendRef],
        weights: &[u32],
        traffic: Traffic,
        rewrites: BackendRewrites,
    ) -> BackendShares<'w> {
        let mut shares = BackendShares {
            backends: Vec::with_capacity(references.len()),
            ..BackendShares::default()
        };
        for (i, (reference, weight)) in references.iter().zip(weights).enumerate() {
            let at = || format!("rules[{index}].backendRefs[{i}]");
            let resolved = self.reach(at, reference, traffic, &mut shares.references);
            let filters = filters::read_backend(&reference.filters, rewrites);
            let (backend, filters) = match (resolved, filters) {
                (Ok(Some(backend)), Ok(filters)) => (backend, filters),
                (resolved, filters) => {
                    let faults = &mut shares.references.faults;
                    if let Err((reason, why)) = resolved {
                        faults.push((reason, format!("{}: {why}", at())));
                    }
                    match filters {
                        Ok(_) => {}
                        // Of all filter errors, only an invalid extensionRef affects
                        // `ResolvedRefs`.
                        Err((Reason::InvalidKind, message)) => faults.push((
                            Reason::InvalidKind,
                            format!(
                                "{}.{message}; its share of the requests gets {}",
                                at(),
                                self.traffic.refusal()
                            ),
                        )),
                        Err((_, message)) => shares
                            .unsupported
                            .push(format!("backendRefs[{i}].{message}")),
                    }
                    if *weight == 0 {
                        continue;
                    }
                    (String::new(), BackendFilters::default())
                }
            };
            let BackendFilters {
                request_headers,
                response_headers,
                rewrite,
            } = filters;
            shares.backends.push(schema::WeightedBackend {
                backend,
                weight: *weight,
                request_headers: request_headers.map(Box::new),
                response_headers: response_headers.map(Box::new),
                rewrite: rewrite.map(Box::new),
            });
        }
        shares
    }

    /// Returns `None`, and reports a problem with the route, if traffic to the backend is rejected.
    pub(super) fn reach(
        &mut self,
        at: impl Fn() -> String,
        reference: &'w BackendRef,
        traffic: Traffic,
        references: &mut RuleReferences<'w>,
    ) -> Result<Option<String>, Grounds> {
        let ResolvedRef { policed, target } =
            self.backends
                .resolve(self.referrer, reference, traffic, self.cx);
        references.policed.extend(policed);
        Ok(match target? {
            BackendTarget::Backend(name) => Some(name),
            BackendTarget::Refused(why) => {
                let message = format!("{}: {why}; its share is rejected", at());
                self.cx.problems.add(self.object.clone(), message);
                None
            }
        })
    }
}

pub(super) fn read_weights(references: &[BackendRef]) -> Result<Vec<u32>, String> {
    limits::entries(
        "backendRefs",
        references.len(),
        0..=limits::MAX_BACKEND_REFS,
    )?;
    references
        .iter()
        .enumerate()
        .map(|(i, reference)| {
            let weight = reference.weight.unwrap_or(1);
            u32::try_from(weight)
                .ok()
                .filter(|weight| *weight <= limits::MAX_WEIGHT)
                .ok_or_else(|| {
                    format!(
                        "backendRefs[{i}].weight {weight} is out of range; expected 0 to {}",
                        limits::MAX_WEIGHT
                    )
                })
        })
        .collect()
}
