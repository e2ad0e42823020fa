//! Request mirroring: sends copies of requests to other backends and ignores their responses.

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3::route_action::RequestMirrorPolicy;
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use sesame_proto::schema::Mirror;

use crate::context::RenderContext;
use crate::rendered::RenderProblems;

pub(crate) fn render(
    object: &str,
    mirrors: &[Mirror],
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<RequestMirrorPolicy> {
    let mut policies = Vec::with_capacity(mirrors.len());
    for Mirror {
        backend,
        numerator,
        denominator,
    } in mirrors
    {
        if !context.has_cluster(backend) {
            problems.add(
                object,
                format!("mirror `{backend}` has no cluster; it gets no copies"),
            );
            continue;
        }
        if *denominator == 0 {
            problems.add(
                object,
                format!("mirror `{backend}`: {numerator}/0 is not a fraction; it gets no copies"),
            );
            continue;
        }
        if *numerator == 0 {
            continue;
        }
        policies.push(RequestMirrorPolicy {
            cluster: backend.clone(),
            // Without a fraction, Envoy copies every request.
            runtime_fraction: (numerator < denominator).then(|| RuntimeFractionalPercent {
                default_value: Some(fraction(*numerator, *denominator)),
                ..Default::default()
            }),
            // By default, Envoy appends `-shadow` to the host.
            disable_shadow_host_suffix_append: true,
            ..Default::default()
        });
    }
    policies
}

/// Envoy supports the denominators 100, 10,000 and 1,000,000. Other fractions are rounded down to
/// millionths, but never to zero.
fn fraction(numerator: u32, denominator: u32) -> FractionalPercent {
    let of = |whole: u64| u64::from(numerator) * whole / u64::from(denominator);
    let exact = |whole: u64| (u64::from(numerator) * whole).is_multiple_of(u64::from(denominator));
    let (numerator, denominator) = if exact(100) {
        (of(100), DenominatorType::Hundred)
    } else if exact(10_000) {
        (of(10_000), DenominatorType::TenThousand)
    } else {
        (of(1_000_000).max(1), DenominatorType::Million)
    };
    FractionalPercent {
        numerator: u32::try_from(numerator).unwrap_or(u32::MAX),
        denominator: denominator.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_become_envoy_fractions() {
        let cases = [
            ((1, 2), (50, DenominatorType::Hundred)),
            ((1, 1000), (10, DenominatorType::TenThousand)),
            ((1, 3), (333_333, DenominatorType::Million)),
            ((1, u32::MAX), (1, DenominatorType::Million)),
        ];
        for ((numerator, denominator), (expected, of)) in cases {
            let fraction = fraction(numerator, denominator);
            assert_eq!((fraction.numerator, fraction.denominator()), (expected, of));
        }
    }
}
