//! Rate limits in HTTPProxies. All routes without their own limit share the virtual host's limit.

use std::sync::Arc;

use sesame_proto::schema::{RateLimit, RateLimitService};

use super::descriptors;
use super::extension_services::{self, NOT_FOUND, ReadExtension};
use super::header_policies::response_policy;
use super::roots::Root;
use super::rules::{ReadRoute, RouteFault};
use super::tree::Place;
use crate::backends::{PolicedBackend, Traffic};
use crate::ingresses::lookup::{LayeredLookup, RuleOwner};
use crate::policies::traffic::LimitCounts;
use crate::routes::rules::Action;
use crate::syntax::limits;
use crate::syntax::regexes::Regexes;
use sesame_kinds::api::{
    ExtensionServiceRef, IngressRateLimitService, IngressSettings, LimitHeaders, NamespacedName,
    ProxyGlobalRateLimits, ProxyHeaders, ProxyLocalRateLimit, ProxyRateLimits, ProxyRoute,
};
use sesame_kinds::world::Kind;

/// Contour's default domain.
const DOMAIN: &str = "contour";

type ReadLimit = Result<Option<Arc<RateLimit>>, RouteFault>;
type ReadLimits = Result<Vec<Arc<RateLimit>>, RouteFault>;

/// The service that decides about global limits, for one root.
pub(super) struct LimitService<'w> {
    /// `None` if the service is invalid, but its limits fail open.
    service: Option<RateLimitService>,
    draft_headers: bool,
    policed: Vec<PolicedBackend<'w>>,
    warning: Option<String>,
}

impl<'w> LimitService<'w> {
    pub(super) fn find(
        settings: Option<&'w IngressSettings>,
        gateway: (&str, &str),
        lookup: &mut LayeredLookup<'_, 'w, '_>,
    ) -> Result<Self, RouteFault> {
        let spec = settings.and_then(|it| it.rate_limit_service.as_ref());
        let Some(spec) = spec else {
            let why = "rateLimitPolicy.global needs a rate limit service; set \
                       spec.ingress.rateLimitService of the configuration";
            return Err((("RouteError", "NotSupported"), why.to_owned()));
        };
        let IngressRateLimitService {
            extension_service: ExtensionServiceRef { namespace, name },
            domain,
            fail_open,
            headers,
            resource_exhausted,
        } = spec;
        let (fail_open, kind) = (fail_open.unwrap_or_default(), Kind::ExtensionService);
        let world = lookup.cx.world;
        let read = match world.extension_services.get(namespace, name) {
            Some(extension) => {
                let owner = RuleOwner::of(kind, &extension.metadata);
                let mut cx = lookup.rule_context(&owner);
                extension_services::read(extension, Traffic::Grpc, gateway, &mut cx)
            }
            None => Err((NOT_FOUND, "it does not exist".to_owned())),
        };
        let read =
            read.map_err(|(_, why)| format!("rate limit service {kind} {namespace}/{name}: {why}"));
        let ReadExtension {
            backend,
            policed,
            timeout_ms,
            warnings: _,
        } = match read {
            Ok(read) => read,
            Err(why) if fail_open => {
                return Ok(Self {
                    service: None,
                    draft_headers: false,
                    policed: Vec::new(),
                    warning: Some(format!("{why}; rateLimitPolicy.global has no effect")),
                });
            }
            Err(why) => return Err((("RouteError", "RateLimitPolicyNotValid"), why)),
        };
        let service = RateLimitService {
            backend,
            domain: domain.as_deref().unwrap_or(DOMAIN).to_owned(),
            timeout_ms,
            fail_open,
            resource_exhausted: resource_exhausted.unwrap_or_default(),
        };
        Ok(Self {
            service: Some(service),
            draft_headers: *headers == Some(LimitHeaders::DraftVersion03),
            policed,
            warning: None,
        })
    }
}

pub(super) struct HostLimits<'a, 'w> {
    /// The highest numbers on the Gateway's listeners.
    inherited: LimitCounts,
    local: ReadLimit,
    global: ReadLimits,
    service: &'a Result<LimitService<'w>, RouteFault>,
}

impl<'a, 'w> HostLimits<'a, 'w> {
    pub(super) fn read(
        root: &Root<'_>,
        service: &'a Result<LimitService<'w>, RouteFault>,
        inherited: LimitCounts,
        regexes: &mut Regexes,
    ) -> Self {
        let policy = root.virtualhost.rate_limit_policy.as_ref();
        let local = policy.and_then(|it| it.local.as_ref());
        let mut host = Self {
            inherited,
            local: local.map_or(Ok(None), |local| read(&root.name, "rateLimit", local)),
            global: Ok(Vec::new()),
            service,
        };
        if let Some(global) = policy.and_then(|it| it.global.as_ref()) {
            host.global = host.read_global(&root.name, "rateLimit", global, regexes);
        }
        host
    }

    fn read_global(
        &self,
        proxy: &NamespacedName,
        place: &str,
        global: &ProxyGlobalRateLimits,
        regexes: &mut Regexes,
    ) -> ReadLimits {
        let ProxyGlobalRateLimits {
            disabled,
            descriptors,
        } = global;
        if *disabled {
            return Ok(Vec::new());
        }
        if descriptors.is_empty() {
            return self.global.clone();
        }
        let keys = descriptors::read(descriptors, regexes).map_err(|why| {
            let why = format!("rateLimitPolicy.global.{why}");
            (("RouteError", "RateLimitPolicyNotValid"), why)
        })?;
        let found = self.service.as_ref().map_err(Clone::clone)?;
        let LimitService {
            service: Some(service),
            draft_headers,
            ..
        } = found
        else {
            return Ok(Vec::new());
        };
        let proxy = Kind::HttpProxy.named(proxy.clone());
        let limits = keys.into_iter().enumerate().map(|(i, keys)| {
            Arc::new(RateLimit {
                name: format!("{proxy}/{place}/global/{i}"),
                keys,
                draft_headers: *draft_headers,
                service: Some(service.clone()),
                ..RateLimit::default()
            })
        });
        Ok(limits.collect())
    }

    /// Returns true if the policy itself has descriptors.
    fn asks(policy: Option<&ProxyRateLimits>) -> bool {
        let global = policy.and_then(|it| it.global.as_ref());
        global.is_some_and(|it| !it.disabled && !it.descriptors.is_empty())
    }
}

impl<'w> ReadRoute<'w> {
    /// If the limit is unsupported, the route responds with an error.
    pub(super) fn limit(
        &mut self,
        host: &HostLimits<'_, 'w>,
        place: &Place<'_>,
        (index, route): (usize, &ProxyRoute),
        regexes: &mut Regexes,
    ) {
        if !self.errors.is_empty() {
            return;
        }
        let own = route.rate_limit_policy.as_ref();
        let local = own.and_then(|it| it.local.as_ref());
        let at = format!("routes/{index}/rateLimit");
        let global = match own.and_then(|it| it.global.as_ref()) {
            Some(global) => host.read_global(&place.name, &at, global, regexes),
            None => host.global.clone(),
        };
        let has_own = local.is_some() || HostLimits::asks(own);
        let limits = global.and_then(|global| {
            let local = match local {
                Some(own) => read(&place.name, &at, own),
                None => host.local.clone(),
            };
            Ok((local?, global))
        });
        match limits {
            Ok((local, global)) if matches!(self.rule.action, Action::Forward(_)) => {
                if let (false, Ok(service)) = (global.is_empty(), host.service) {
                    self.policed.extend(&service.policed);
                }
                if let (true, Ok(LimitService { warning, .. })) =
                    (HostLimits::asks(own), host.service)
                {
                    let warning = warning.iter().cloned();
                    let code = ("SpecError", "IgnoredField");
                    self.warnings.extend(warning.map(|why| (code, why)));
                }
                self.rule.rate_limits.extend(local);
                self.rule.rate_limits.extend(global);
                let all = LimitCounts::of(&self.rule.rate_limits);
                if let Err(why) = all.check(&host.inherited) {
                    let why = format!("rateLimitPolicy: with the Gateway's limits, {why}");
                    self.refuse(index, (("RouteError", "RateLimitPolicyNotValid"), why));
                }
            }
            Ok(_) => {
                let why = "rateLimitPolicy has no effect: only requests to services are limited";
                let warning = has_own.then(|| (("SpecError", "IgnoredField"), why.to_owned()));
                self.warnings.extend(warning);
            }
            Err(fault) => self.refuse(index, fault),
        }
    }
}

fn read(proxy: &NamespacedName, place: &str, local: &ProxyLocalRateLimit) -> ReadLimit {
    let name = format!("{}/{place}", Kind::HttpProxy.named(proxy.clone()));
    let limit = checked(name, local, &proxy.namespace);
    limit.map(|limit| Some(Arc::new(limit))).map_err(|why| {
        let why = format!("rateLimitPolicy.local.{why}");
        (("RouteError", "RateLimitPolicyNotValid"), why)
    })
}

fn checked(
    name: String,
    local: &ProxyLocalRateLimit,
    namespace: &str,
) -> Result<RateLimit, String> {
    let ProxyLocalRateLimit {
        requests,
        unit,
        burst,
        response_status_code,
        response_headers_to_add,
    } = local;
    let requests = u32::try_from(*requests).ok().filter(|it| *it > 0);
    let requests = requests.ok_or("requests must be a number from 1 to 4294967295")?;
    let per_ms = match unit.as_str() {
        "second" => 1_000,
        "minute" => 60_000,
        "hour" => 3_600_000,
        _ => return Err(format!("unit {unit:?}: expected second, minute or hour")),
    };
    let burst = u32::try_from(*burst).map_err(|_| format!("burst {burst}: expected 0 or more"))?;
    let status = match response_status_code.unwrap_or_default() {
        0 => 0,
        status => u32::try_from(status)
            .ok()
            .filter(|it| RateLimit::is_status(*it))
            .ok_or_else(|| {
                format!(
                    "responseStatusCode {status}: expected a status from 400 to 511 that Envoy \
                     supports"
                )
            })?,
    };
    let count = response_headers_to_add.len();
    limits::entries("responseHeadersToAdd", count, 0..=RateLimit::MAX_HEADERS)?;
    let set = ProxyHeaders {
        set: response_headers_to_add.clone(),
        remove: Vec::new(),
    };
    let headers = response_policy(Some(&set), namespace, None);
    let headers = headers.map_err(|why| format!("responseHeadersToAdd: {why}"))?;
    Ok(RateLimit {
        name,
        requests,
        per_ms,
        burst,
        keys: Vec::new(),
        status,
        response_headers: headers.map(|it| it.set).unwrap_or_default(),
        report_only: false,
        draft_headers: false,
        fleet: false,
        service: None,
    })
}
