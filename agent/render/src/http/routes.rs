//! Renders a route: its match, action and filters.
//!
//! Omits a route that Envoy would reject, unless it might be security-relevant. Never write
//! duplicate values or empty options: Envoy takes about 7 µs per route whenever a table changes.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::route::v3::{Route as EnvoyRoute, RouteMatch, route};
use envoy_types::pb::google::protobuf::Any;
use sesame_proto::refusal;
use sesame_proto::schema::{Cors, ExternalAuth, RequestFilters, Route, route::Action};

use super::answers::{answer, direct};
use super::auth_context::HostContexts;
use super::backend_rewrites::RequestPart;
use super::forward::{self, changes_request};
use super::headers::{self, HeaderChanges};
use super::matches::MatchedProtocol;
use super::sessions::{self, SessionParts};
use super::{
    auth_headers, cors, external_auth, matches, oidc, rate_limits, redirects, refusing,
    request_filters,
};
use crate::context::RenderContext;
use crate::rendered::RenderProblems;

pub(crate) struct RenderedRoute {
    pub(crate) route: EnvoyRoute,
    pub(crate) filters: BTreeMap<&'static str, Any>,
}

#[derive(Clone, Copy)]
pub(crate) struct HostOfRoutes<'h> {
    pub(crate) domain: &'h str,
    pub(crate) https: bool,
    pub(crate) filters: Option<&'h RequestFilters>,
    pub(crate) contexts: &'h HostContexts<'h>,
    /// True if the listener itself authorizes requests.
    pub(crate) listener_authorizes: bool,
}

impl HostOfRoutes<'_> {
    fn protocol(&self, grpc: bool, own: Option<&RequestFilters>) -> MatchedProtocol {
        let translates = own.or(self.filters).is_some_and(|it| it.grpc_web);
        MatchedProtocol::new(grpc, translates)
    }

    /// A route's own filters replace all filters of its virtual host.
    fn filters_instead(
        &self,
        own: Option<&RequestFilters>,
        context: &RenderContext<'_>,
    ) -> Result<BTreeMap<&'static str, Any>, String> {
        let Some(own) = own else {
            return Ok(BTreeMap::new());
        };
        let disabled = request_filters::ALL.into_iter();
        let disabled = disabled.filter(|_| self.filters.is_some());
        let disabled = disabled.map(|place| (place, request_filters::idle(place)));
        let own = request_filters::render(own, &context.filters.shared)?;
        Ok(disabled.chain(own).collect())
    }
}

/// Returns an empty list if Envoy cannot express the match.
pub(crate) fn render(
    route: &Route,
    host: HostOfRoutes<'_>,
    context: &RenderContext<'_>,
    problems: &mut RenderProblems,
) -> Vec<RenderedRoute> {
    let Route {
        name,
        path,
        method,
        headers,
        query_params,
        action,
        request_headers,
        response_headers,
        cors,
        grpc,
        external_auth,
        rate_limits,
        filters: own_filters,
    } = route;
    let grpc = host.protocol(*grpc, own_filters.as_deref());
    let route_match = matches::render(path.as_ref(), method, headers, query_params, grpc);
    let consequence = refusing::consequence(route);
    let Some(route_match) = problems.value(name, route_match, consequence) else {
        return Vec::new();
    };
    let mut request = headers::changes(name, request_headers.as_deref(), problems);
    let response = headers::changes(name, response_headers.as_deref(), problems);
    let mut filters = BTreeMap::new();
    if let Some(cors) = cors {
        filters.insert(cors::FILTER, cors::render(name, cors, problems));
    }
    let authorized = authorization(external_auth, host, context);
    let policy_filters = host.filters_instead(own_filters.as_deref(), context);
    let checked = authorized.and_then(|authorized| {
        filters.extend(authorized);
        filters.extend(policy_filters?);
        Ok(())
    });
    let rule_request = take_backend_header_changes(action.as_ref(), &mut request);
    let frame = RouteFrame {
        route,
        route_match,
        request,
        response,
        filters,
    };
    let routes = checked
        .and_then(|()| rate_limits::of_route(rate_limits, context))
        .and_then(|limits| {
            let mut routes = frame.routes(host, &rule_request, context, problems)?;
            limits.apply(&mut routes);
            Ok(routes)
        });
    let routes = problems
        .value(name, routes, "its requests get 500")
        .unwrap_or_else(|| vec![frame.with(answer(refusal::HTTP))]);
    let routes = match cors {
        Some(cors) => with_cors(route, routes, cors, &frame.route_match),
        None => routes,
    };
    measured(routes, context.measured_as(name))
}

fn measured(mut routes: Vec<RenderedRoute>, name: Option<String>) -> Vec<RenderedRoute> {
    if let Some(name) = name {
        for rendered in &mut routes {
            rendered.route.stat_prefix.clone_from(&name);
        }
    }
    routes
}

fn authorization(
    auths: &[ExternalAuth],
    host: HostOfRoutes<'_>,
    context: &RenderContext<'_>,
) -> Result<BTreeMap<&'static str, Any>, String> {
    let services = || auths.iter().filter(|auth| oidc::login_of(auth).is_none());
    let (count, most) = (services().count(), Route::MAX_EXTERNAL_AUTHS);
    if count > most {
        return Err(format!(
            "the route has {count} authorizations; at most {most} are allowed"
        ));
    }
    let configs = services().map(|auth| external_auth::of_route(auth, context));
    let places = host.contexts.places(services())?.into_iter().zip(configs);
    let places = places.map(|(place, config)| config.map(|config| (place, config)));
    let headers = auth_headers::render(auths);
    let headers = headers.map(|config| Ok((auth_headers::FILTER, config)));
    let login = oidc::of_route(auths, host.listener_authorizes, context)?;
    let login = login.map(|config| Ok((oidc::FILTER, config)));
    places.chain(headers).chain(login).collect()
}

/// Envoy applies a backend's header changes before the route's, but the rule's must come first. If
/// a backend changes request headers, each backend applies the rule's changes itself.
fn take_backend_header_changes(
    action: Option<&Action>,
    request: &mut HeaderChanges,
) -> HeaderChanges {
    match action {
        Some(Action::Forward(forward)) if forward.backends.iter().any(changes_request) => {
            std::mem::take(request)
        }
        _ => HeaderChanges::default(),
    }
}

struct RouteFrame<'r> {
    route: &'r Route,
    route_match: RouteMatch,
    request: HeaderChanges,
    response: HeaderChanges,
    filters: BTreeMap<&'static str, Any>,
}

impl RouteFrame<'_> {
    fn routes(
        &self,
        host: HostOfRoutes<'_>,
        rule_request: &HeaderChanges,
        context: &RenderContext<'_>,
        problems: &mut RenderProblems,
    ) -> Result<Vec<RenderedRoute>, String> {
        let route = self.route;
        match &route.action {
            Some(Action::Forward(forward)) => {
                let actions = forward::render_all(route, forward, rule_request, context, problems)?;
                let session = forward.session.as_deref();
                let session = session.map(|it| sessions::render(it, host.https));
                let session = session.transpose()?;
                let parts = actions.into_iter().map(|(RequestPart(below), action)| {
                    let mut rendered = self.with_session(action, session.as_ref());
                    if let Some(route_match) = &mut rendered.route.r#match {
                        route_match.runtime_fraction = below;
                    }
                    rendered
                });
                Ok(parts.collect())
            }
            Some(Action::Redirect(redirect)) => {
                let action = redirects::render(redirect, route.path.as_ref())?;
                let variants =
                    redirects::variants(redirect, host.domain, &self.route_match, action);
                let variants = variants.into_iter().map(|(route_match, action)| {
                    self.matching(route_match, route::Action::Redirect(action))
                });
                Ok(variants.collect())
            }
            Some(Action::DirectResponse(response)) => Ok(vec![self.with(direct(response)?)]),
            None => Err("the route has no action".to_owned()),
        }
    }

    fn with(&self, action: route::Action) -> RenderedRoute {
        self.matching(self.route_match.clone(), action)
    }

    fn matching(&self, route_match: RouteMatch, action: route::Action) -> RenderedRoute {
        RenderedRoute {
            route: EnvoyRoute {
                name: self.route.name.clone(),
                r#match: Some(route_match),
                request_headers_to_add: self.request.add.clone(),
                request_headers_to_remove: self.request.remove.clone(),
                response_headers_to_add: self.response.add.clone(),
                response_headers_to_remove: self.response.remove.clone(),
                action: Some(action),
                ..Default::default()
            },
            filters: self.filters.clone(),
        }
    }

    fn with_session(&self, action: route::Action, session: Option<&SessionParts>) -> RenderedRoute {
        let mut rendered = self.with(action);
        if let Some(SessionParts { config, response }) = session {
            rendered.filters.insert(sessions::FILTER, config.clone());
            let headers = &mut rendered.route.response_headers_to_add;
            headers.push(response.clone());
        }
        rendered
    }
}

fn with_cors(
    route: &Route,
    routes: Vec<RenderedRoute>,
    cors: &Cors,
    route_match: &RouteMatch,
) -> Vec<RenderedRoute> {
    let (name, method) = (&route.name, route.method.as_str());
    let takes_preflights = cors.takes_preflights(route);
    let mut all = Vec::with_capacity(2 * routes.len() + 1);
    for mut rendered in routes {
        let headers = &mut rendered.route.response_headers_to_add;
        headers.push(cors::vary());
        if matches!(rendered.route.action, Some(route::Action::Route(_))) {
            // A route that itself matches preflights needs no second route for them.
            let preflight = (!takes_preflights).then(|| RenderedRoute {
                route: EnvoyRoute {
                    r#match: Some(matches::preflight(route_match, method, cors)),
                    ..rendered.route.clone()
                },
                filters: rendered.filters.clone(),
            });
            all.push(rendered);
            all.extend(preflight);
            continue;
        }
        if let Some(config) = rendered.filters.remove(cors::FILTER)
            && all.is_empty()
        {
            all.push(cors::preflight_route(
                name,
                route_match,
                method,
                cors,
                config,
            ));
        }
        let allowed = cors::from_allowed_origins(cors, &rendered.route);
        all.extend(allowed.map(|route| RenderedRoute {
            route,
            filters: rendered.filters.clone(),
        }));
        all.push(rendered);
    }
    all
}
