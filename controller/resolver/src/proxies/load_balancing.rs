//! Load balancing strategies in HTTPProxies.

use sesame_proto::schema::load_balancer::Strategy;
use sesame_proto::schema::session_persistence::Kind;
use sesame_proto::schema::{
    HashPolicy, LoadBalancer, MAX_BACKEND_MS, SessionPersistence, SlowStart, hash_policy,
};

use crate::syntax::{durations, names};
use sesame_kinds::api::{
    ProxyHashPolicy, ProxyHeaderHash, ProxyLoadBalancer, ProxyQueryHash, ProxyService,
    ProxySlowStart,
};

/// Contour's name for the session cookie.
const COOKIE: &str = "X-Contour-Session-Affinity";

/// Contour's defaults for slow start.
const MIN_WEIGHT_PERCENT: i64 = 10;
const AGGRESSION: f64 = 1.0;

#[derive(Debug, Default)]
pub(super) struct Balance {
    /// `None` means round robin.
    pub(super) load_balancer: Option<LoadBalancer>,
    pub(super) session: Option<SessionPersistence>,
    pub(super) warnings: Vec<String>,
}

impl Balance {
    fn by(strategy: Strategy) -> Self {
        Self {
            load_balancer: Some(LoadBalancer {
                strategy: strategy.into(),
                ..LoadBalancer::default()
            }),
            ..Self::default()
        }
    }

    fn in_turn(why: String) -> Self {
        Self {
            warnings: vec![why],
            ..Self::default()
        }
    }
}

pub(super) fn of_requests(
    policy: Option<&ProxyLoadBalancer>,
    services: &[ProxyService],
) -> Balance {
    let Some(ProxyLoadBalancer {
        strategy,
        request_hash_policies,
    }) = policy
    else {
        return Balance::default();
    };
    let mut balance = match strategy.as_str() {
        "Cookie" => Balance {
            session: Some(SessionPersistence {
                kind: Some(Kind::Cookie(COOKIE.to_owned())),
                ..SessionPersistence::default()
            }),
            ..Balance::default()
        },
        "RequestHash" => hashed(request_hash_policies),
        _ => return of_connections(policy),
    };
    if services.iter().filter(|it| !it.mirror).count() > 1 {
        balance.warnings.push(format!(
            "loadBalancerPolicy.strategy {strategy}: weights choose the service of each request \
             first, so a client keeps its endpoint only between requests to one service"
        ));
    }
    balance
}

/// Ignores hash policies, which apply only to requests.
pub(super) fn of_connections(policy: Option<&ProxyLoadBalancer>) -> Balance {
    let Some(ProxyLoadBalancer {
        strategy,
        request_hash_policies: _,
    }) = policy
    else {
        return Balance::default();
    };
    let in_turn = "RoundRobin applies instead";
    let why = match strategy.as_str() {
        "" | "RoundRobin" => return Balance::default(),
        "Random" => return Balance::by(Strategy::Random),
        "WeightedLeastRequest" => return Balance::by(Strategy::LeastRequest),
        "Cookie" | "RequestHash" => "applies only to HTTP requests",
        _ => "is unknown; expected RoundRobin, WeightedLeastRequest, Random, RequestHash or Cookie",
    };
    Balance::in_turn(format!(
        "loadBalancerPolicy.strategy {strategy:?} {why}; {in_turn}"
    ))
}

fn hashed(policies: &[ProxyHashPolicy]) -> Balance {
    let mut balance = Balance::default();
    let mut hash_policies: Vec<HashPolicy> = Vec::new();
    let ignored = |at: usize, why: String| {
        format!("loadBalancerPolicy.requestHashPolicies[{at}] has no effect: {why}")
    };
    let most = HashPolicy::MAX;
    for (at, policy) in policies.iter().take(most).enumerate() {
        let read = match hash_policy(policy) {
            Ok(read) if hash_policies.iter().any(|it| it.kind == read.kind) => {
                Err("an earlier entry hashes the same value".to_owned())
            }
            read => read,
        };
        match read {
            Ok(policy) => hash_policies.push(policy),
            Err(why) => balance.warnings.push(ignored(at, why)),
        }
    }
    if policies.len() > most {
        let why = ignored(most, format!("expected at most {most}"));
        balance.warnings.push(why);
    }
    if hash_policies.is_empty() {
        let why = "loadBalancerPolicy.strategy RequestHash has no valid requestHashPolicies; \
                   requests go to the endpoints in turn";
        balance.warnings.push(why.to_owned());
    } else {
        balance.load_balancer = Some(LoadBalancer {
            strategy: Strategy::RingHash.into(),
            hash_policies,
            ..LoadBalancer::default()
        });
    }
    balance
}

fn hash_policy(policy: &ProxyHashPolicy) -> Result<HashPolicy, String> {
    let ProxyHashPolicy {
        terminal,
        header_hash_options,
        query_parameter_hash_options,
        hash_source_ip,
    } = policy;
    let kind = match (
        header_hash_options,
        query_parameter_hash_options,
        hash_source_ip,
    ) {
        (Some(ProxyHeaderHash { header_name }), None, false) => {
            names::check_token(format_args!("headerName"), header_name)?;
            hash_policy::Kind::Header(header_name.to_ascii_lowercase())
        }
        (None, Some(ProxyQueryHash { parameter_name }), false) => {
            names::check_token(format_args!("parameterName"), parameter_name)?;
            hash_policy::Kind::QueryParameter(parameter_name.clone())
        }
        (None, None, true) => hash_policy::Kind::SourceAddress(true),
        _ => {
            return Err("expected exactly one of headerHashOptions, \
                        queryParameterHashOptions and hashSourceIP"
                .to_owned());
        }
    };
    Ok(HashPolicy {
        kind: Some(kind),
        terminal: *terminal,
    })
}

pub(super) fn with_slow_start(
    service: &ProxyService,
    balancer: Option<&LoadBalancer>,
) -> Result<Option<LoadBalancer>, String> {
    let balancer = balancer.cloned();
    let Some(policy) = &service.slow_start_policy else {
        return Ok(balancer);
    };
    let mut balancer = balancer.unwrap_or_default();
    match balancer.strategy() {
        Strategy::RoundRobin | Strategy::LeastRequest => {}
        Strategy::Random | Strategy::RingHash | Strategy::Maglev => {
            return Err("only RoundRobin and WeightedLeastRequest support it".to_owned());
        }
    }
    balancer.slow_start = Some(slow_start(policy)?);
    Ok(Some(balancer))
}

fn slow_start(policy: &ProxySlowStart) -> Result<SlowStart, String> {
    let ProxySlowStart {
        window,
        aggression,
        min_weight_percent,
    } = policy;
    let window_ms = durations::of_go(window).map_err(|why| format!("window {why}"))?;
    if !(1..=MAX_BACKEND_MS).contains(&window_ms) {
        return Err(format!("window {window:?}: expected 1ms to 24h"));
    }
    let most = f64::from(SlowStart::MAX_AGGRESSION) / 1_000.0;
    let exponent = match aggression.as_str() {
        "" => Some(AGGRESSION),
        text => text.parse().ok().filter(|it| (0.001..=most).contains(it)),
    };
    let percent = min_weight_percent.unwrap_or(MIN_WEIGHT_PERCENT);
    let Some(exponent) = exponent else {
        return Err(format!(
            "aggression {aggression:?}: expected 0.001 to {most}"
        ));
    };
    let Some(min_weight_percent) = u32::try_from(percent).ok().filter(|it| *it <= 100) else {
        return Err(format!("minWeightPercent {percent}: expected 0 to 100"));
    };
    Ok(SlowStart {
        window_ms,
        aggression_per_mille: per_mille(exponent),
        min_weight_percent,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the exponent is positive and small"
)]
fn per_mille(exponent: f64) -> u32 {
    (exponent * 1_000.0).round() as u32
}
