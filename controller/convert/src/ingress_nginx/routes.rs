//! Groups the rules of hosts into HTTPRoutes, and redirects plain HTTP.

use serde_json::{Value, json};
use sesame_resolver::nginx_annotations::NginxRedirect;

use super::super::routing::{self, RouteDraft, RuleDraft};
use super::IngressInput;
use super::rules::{HostRules, all, redirect_rule};

const HTTPS_REDIRECT: u32 = 308;

/// Returns the routes for all hosts. Hosts with the same rules share a route.
pub(super) fn of_hosts(input: &IngressInput, hosts: Vec<HostRules>) -> Vec<RouteDraft> {
    let mut routes: Vec<RouteDraft> = Vec::new();
    for HostRules {
        host,
        redirects,
        rules,
    } in hosts
    {
        if rules.is_empty() {
            continue;
        }
        let https = input.index.listener(&host).map(|(covering, owner)| {
            let name = routing::listener_name(covering);
            routing::listener_parent(owner, &input.id.namespace, &name)
        });
        let redirects = redirects && (https.is_some() || refuse_redirect(input, &host));
        let http = routing::http_parent(&input.class);
        let plain = Some(http.clone()).filter(|_| !redirects);
        let parents: Vec<Value> = plain.into_iter().chain(https).collect();
        let moved = redirects.then(|| (vec![http], vec![to_https(&rules)], "redirect"));
        for (parents, rules, suffix) in [(parents, rules, "")].into_iter().chain(moved) {
            let alike = routes.iter_mut().find(|it| {
                let exact = !it.hostnames.is_empty() && !host.is_empty();
                exact && it.parents == parents && it.rules == rules
            });
            if let Some(alike) = alike {
                alike.hostnames.push(host.clone());
                continue;
            }
            let own = Some(host.clone()).filter(|host| !host.is_empty());
            let route = RouteDraft {
                name: name(input, &routes, &host, suffix),
                hostnames: own.into_iter().collect(),
                parents,
                rules,
            };
            routes.push(route);
        }
    }
    routes
}

/// The first route has the name of the Ingress, and later routes also contain their host.
fn name(input: &IngressInput, routes: &[RouteDraft], host: &str, suffix: &str) -> String {
    let name = &input.id.name;
    let is_taken = |name: &str| routes.iter().any(|route| route.name == name);
    let base = if is_taken(name) && (suffix.is_empty() || is_taken(&format!("{name}-{suffix}"))) {
        let host = if host.is_empty() { "default" } else { host };
        routing::suffixed(name, host, routes.len() + 1)
    } else {
        name.clone()
    };
    match suffix {
        "" => base,
        suffix => format!("{base}-{suffix}"),
    }
}

/// Redirects the requests that the rules match.
fn to_https(rules: &[RuleDraft]) -> RuleDraft {
    let redirect = NginxRedirect {
        scheme: "https",
        host: String::new(),
        port: None,
        path: None,
        status: HTTPS_REDIRECT,
    };
    let mut rule = redirect_rule(&all(), &redirect);
    rule.matches.clear();
    for matched in rules.iter().flat_map(|rule| &rule.matches) {
        let matched = json!({ "path": matched["path"] });
        if !rule.matches.contains(&matched) {
            rule.matches.push(matched);
        }
    }
    rule
}

/// Returns false, so that the host is served over HTTP if the caller accepts the loss.
fn refuse_redirect(input: &IngressInput, host: &str) -> bool {
    let reason = format!(
        "no Ingress in the input has a certificate for host {host:?}, so all requests would be \
        redirected to a port that does not serve it"
    );
    let remedy =
        "add spec.tls with a Secret; or accept the loss if clients use HTTPS to a load balancer";
    let annotation = "metadata.annotations.nginx.ingress.kubernetes.io/force-ssl-redirect";
    input.log.refuse(annotation, &reason, remedy);
    false
}
