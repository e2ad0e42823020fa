//! Rules with rewrites for individual backends.
//!
//! Envoy cannot rewrite per weighted backend, so each backend gets its own route. Envoy compares
//! one random number per request with the limits of all these routes.

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use sesame_proto::schema::{Forward, UrlRewrite, WeightedBackend};

/// All routes of a rule share this denominator, because their limits are cumulative.
const MILLION: u128 = 1_000_000;

/// Selects requests whose random number is below the limit, or all requests if `None`. Earlier
/// routes take precedence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestPart(pub(super) Option<RuntimeFractionalPercent>);

/// Returns an empty list if no backend has a rewrite.
pub(super) fn parts(forward: &Forward) -> Vec<(RequestPart, Forward)> {
    let weighted = || forward.backends.iter().filter(|it| it.weight > 0);
    if weighted().all(|it| it.rewrite.is_none()) {
        return Vec::new();
    }
    let total: u128 = weighted().map(|it| u128::from(it.weight)).sum();
    let last = weighted().count() - 1;
    let mut before = 0;
    let part = |(i, backend): (usize, &WeightedBackend)| {
        before += u128::from(backend.weight);
        let below = (i < last).then(|| share(before, total));
        let forward = Forward {
            backends: vec![WeightedBackend {
                weight: 1,
                rewrite: None,
                ..backend.clone()
            }],
            rewrite: merged(forward.rewrite.as_deref(), backend.rewrite.as_deref()).map(Box::new),
            ..forward.clone()
        };
        (RequestPart(below), forward)
    };
    weighted().enumerate().map(part).collect()
}

fn share(part: u128, total: u128) -> RuntimeFractionalPercent {
    let numerator = u32::try_from(part * MILLION / total).unwrap_or(u32::MAX);
    RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator,
            denominator: DenominatorType::Million.into(),
        }),
        ..Default::default()
    }
}

/// The rule supplies the parts that the backend does not set.
fn merged(rule: Option<&UrlRewrite>, backend: Option<&UrlRewrite>) -> Option<UrlRewrite> {
    let (Some(backend), Some(rule)) = (backend, rule) else {
        return backend.or(rule).cloned();
    };
    let keeps_host = backend.host.is_empty() && backend.host_header.is_empty();
    let host_source = if keeps_host { rule } else { backend };
    Some(UrlRewrite {
        host: host_source.host.clone(),
        path: backend.path.clone().or_else(|| rule.path.clone()),
        host_header: host_source.host_header.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(name: &str, weight: u32, host: Option<&str>) -> WeightedBackend {
        WeightedBackend {
            backend: name.to_owned(),
            weight,
            rewrite: host.map(|host| {
                Box::new(UrlRewrite {
                    host: host.to_owned(),
                    ..UrlRewrite::default()
                })
            }),
            ..WeightedBackend::default()
        }
    }

    #[test]
    fn each_backend_gets_its_share_and_rewrite() {
        let forward = |backends| Forward {
            backends,
            rewrite: Some(Box::new(UrlRewrite {
                host: "rule.test".to_owned(),
                ..UrlRewrite::default()
            })),
            ..Forward::default()
        };
        let plain = forward(vec![backend("a", 1, None), backend("b", 0, Some("b.test"))]);
        assert_eq!(parts(&plain), []);
        let several = forward(vec![
            backend("a", 1, None),
            backend("none", 0, None),
            backend("b", 2, Some("b.test")),
            backend("c", 1, None),
        ]);
        let found: Vec<_> = parts(&several)
            .into_iter()
            .map(|(RequestPart(below), forward)| {
                let below = below.and_then(|it| it.default_value).map(|it| it.numerator);
                let host = forward.rewrite.map(|it| it.host).unwrap_or_default();
                (below, forward.backends[0].backend.clone(), host)
            })
            .collect();
        let of = |below, name: &str, host: &str| (below, name.to_owned(), host.to_owned());
        assert_eq!(
            found,
            [
                of(Some(250_000), "a", "rule.test"),
                of(Some(750_000), "b", "b.test"),
                of(None, "c", "rule.test"),
            ]
        );
    }
}
