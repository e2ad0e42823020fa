//! Manifests that the benchmark writes and changes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::access::{self, Part};

pub(crate) fn hostname(route: usize) -> String {
    format!("h{route}.bench.example.com")
}

pub(crate) fn endpoint_set(route: usize) -> String {
    format!("Service/bench/s{route}/80")
}

/// Returns the endpoint set of the Service that a route uses after it is switched.
pub(crate) fn switched_set(route: usize) -> String {
    format!("Service/bench/t{route}/80")
}

/// Kind of the route objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "verbatim")]
pub(crate) enum RouteKind {
    #[value(name = "HTTPRoute")]
    HttpRoute,
    #[value(name = "HTTPProxy")]
    HttpProxy,
    /// Allowed only with `--pure`, because Ingress responses cannot identify a revision.
    Ingress,
}

/// Policies to add to the measured objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Policies {
    None,
    /// One policy for the Gateway.
    Gateway,
    /// One policy for each route.
    Each,
    /// Policies for the Gateway that filter requests and responses.
    Filters,
    /// Policies for the Gateway with an address filter, a header and a timeout.
    Protect,
    /// The same policies for each route.
    ProtectEach,
    /// AccessPolicies with this part, for the Gateway or for each route.
    #[value(skip)]
    Access(Part, bool),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) routes: usize,
    pub(crate) gateways: usize,
    pub(crate) endpoints: u8,
    pub(crate) listener_sets: usize,
    pub(crate) kind: RouteKind,
    pub(crate) policies: Policies,
}

impl Shape {
    /// The benchmark changes only routes of the first Gateway.
    pub(crate) fn measured(self) -> usize {
        (self.routes / self.gateways).max(1)
    }

    /// No request reaches these limits.
    fn policies_of_requests(self) -> Vec<Value> {
        let policy = |name: &str, kind: &str, target: &str| {
            json!({
                "apiVersion": "projectsesame.io/v1alpha1", "kind": "TrafficPolicy",
                "metadata": {"name": name, "namespace": "bench"},
                "spec": {
                    "targetRefs": [
                        {"group": "gateway.networking.k8s.io", "kind": kind, "name": target},
                    ],
                    "rateLimits": [{
                        "name": "all", "requests": 1_000_000_000, "per": "Second",
                        "keys": [{"type": "ClientAddress"}],
                    }],
                    "timeouts": {"request": "30s"},
                },
            })
        };
        match self.policies {
            Policies::None => Vec::new(),
            Policies::Access(part, each) => access::objects(part, each, self.routes),
            Policies::Gateway => vec![policy("all", "Gateway", &gateway_name(0))],
            Policies::Filters => Self::filters(),
            Policies::Protect => protection("all", "Gateway", &gateway_name(0)).into(),
            Policies::ProtectEach => (0..self.routes)
                .flat_map(|route| {
                    protection(&format!("p{route}"), "HTTPRoute", &format!("r{route}"))
                })
                .collect(),
            Policies::Each => (0..self.routes)
                .map(|route| policy(&format!("p{route}"), "HTTPRoute", &format!("r{route}")))
                .collect(),
        }
    }

    fn filters() -> Vec<Value> {
        let policy = |kind: &str, mut spec: Value| {
            spec["targetRefs"] = json!([{
                "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway_name(0),
            }]);
            json!({
                "apiVersion": "projectsesame.io/v1alpha1", "kind": kind,
                "metadata": {"name": "filters", "namespace": "bench"}, "spec": spec,
            })
        };
        let filters = json!({
            "requestBody": {"maxSize": "1Mi"},
            "compression": {"types": ["Brotli", "Gzip"]},
            "errorPages": [{"codes": ["5xx"], "body": "<h1>Sorry</h1>"}],
            "headers": {"response": {"set": [{"name": "x-frame-options", "value": "DENY"}]}},
        });
        vec![
            policy("TrafficPolicy", filters),
            policy(
                "AccessPolicy",
                json!({"ipFilter": {"deny": ["192.0.2.0/24"]}}),
            ),
        ]
    }

    fn gateway(self, route: usize) -> usize {
        (route / self.measured()).min(self.gateways - 1)
    }
}

/// [`super::plain`] has the same filters, written by hand.
fn protection(name: &str, kind: &str, target: &str) -> [Value; 2] {
    let policy = |policy: &str, mut spec: Value| {
        spec["targetRefs"] =
            json!([{"group": "gateway.networking.k8s.io", "kind": kind, "name": target}]);
        json!({
            "apiVersion": "projectsesame.io/v1alpha1", "kind": policy,
            "metadata": {"name": name, "namespace": "bench"}, "spec": spec,
        })
    };
    let headers = json!({"response": {"set": [{"name": "x-frame-options", "value": "DENY"}]}});
    [
        policy(
            "TrafficPolicy",
            json!({"headers": headers, "timeouts": {"request": "30s"}}),
        ),
        policy(
            "AccessPolicy",
            json!({"ipFilter": {"deny": ["192.0.2.0/24"]}}),
        ),
    ]
}

#[derive(Clone, Debug)]
pub(crate) struct WrittenManifests {
    dir: PathBuf,
    shape: Shape,
}

pub(crate) fn gateway_name(gateway: usize) -> String {
    format!("bench{gateway:03}")
}

impl WrittenManifests {
    pub(crate) fn new(dir: &Path, shape: Shape) -> Self {
        Self {
            dir: dir.to_owned(),
            shape,
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn gateways(&self) -> usize {
        self.shape.gateways
    }

    pub(crate) fn gateway() -> String {
        gateway_name(0)
    }

    pub(crate) fn kind(&self) -> RouteKind {
        self.shape.kind
    }

    pub(crate) fn write_all(&self, port: u16) -> anyhow::Result<()> {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        self.write_access_log(&json!({}), nobody)?;
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "sesame"},
            "spec": {"controllerName": "projectsesame.io/gateway-controller"},
        });
        let ingress_class = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "bench"},
            "spec": {
                "controller": "projectsesame.io/ingress-controller",
                "parameters": {
                    "apiGroup": "gateway.networking.k8s.io", "kind": "Gateway",
                    "scope": "Namespace", "namespace": "bench", "name": gateway_name(0),
                },
            },
        });
        write(&self.dir, "class.yaml", &[class, ingress_class])?;
        write(
            &self.dir,
            "policies.yaml",
            &self.shape.policies_of_requests(),
        )?;
        for gateway in 0..self.shape.gateways {
            let documents = [json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": gateway_name(gateway), "namespace": "bench"},
                "spec": {
                    "gatewayClassName": "sesame",
                    "infrastructure": {"parametersRef": {
                        "group": "projectsesame.io", "kind": "SesameConfiguration", "name": "logs",
                    }},
                    "allowedListeners": {"namespaces": {"from": "Same"}},
                    // All Gateways share one address.
                    "listeners": [{
                        "name": "http", "port": if gateway == 0 { 80 } else { 20_000 + gateway },
                        "protocol": "HTTP",
                    }],
                },
            })];
            write(&self.dir, &format!("gateway{gateway}.yaml"), &documents)?;
        }
        for set in 0..self.shape.listener_sets {
            let documents = [json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
                "metadata": {"name": format!("l{set}"), "namespace": "bench"},
                "spec": {
                    "parentRef": {"name": gateway_name(0)},
                    "listeners": [{
                        "name": "http", "port": 80, "protocol": "HTTP", "hostname": hostname(set),
                    }],
                },
            })];
            write(&self.dir, &format!("listeners{set}.yaml"), &documents)?;
        }
        for route in 0..self.shape.routes {
            self.write_app(route, port, "first")?;
        }
        Ok(())
    }

    pub(crate) fn write_access_log(
        &self,
        access_log: &Value,
        collector: SocketAddr,
    ) -> anyhow::Result<()> {
        let documents = [
            json!({
                "apiVersion": "projectsesame.io/v1alpha1", "kind": "SesameConfiguration",
                "metadata": {"name": "logs", "namespace": "bench"},
                "spec": {"accessLog": access_log},
            }),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "collector", "namespace": "bench"},
                "spec": {"ports": [{"port": 80}]},
            }),
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": "collector-1", "namespace": "bench",
                    "labels": {"kubernetes.io/service-name": "collector"},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [collector.ip().to_string()]}],
                "ports": [{"port": collector.port()}],
            }),
        ];
        write(&self.dir, "logs.yaml", &documents)
    }

    pub(crate) fn write_app(&self, route: usize, port: u16, revision: &str) -> anyhow::Result<()> {
        self.write_app_of(&format!("s{route}"), route, port, revision)
    }

    pub(crate) fn write_switched(
        &self,
        route: usize,
        port: u16,
        revision: &str,
    ) -> anyhow::Result<()> {
        self.write_app_of(&format!("t{route}"), route, port, revision)
    }

    fn write_app_of(
        &self,
        service: &str,
        route: usize,
        port: u16,
        revision: &str,
    ) -> anyhow::Result<()> {
        let endpoints = 1..=self.shape.endpoints;
        let endpoints: Vec<Value> = endpoints
            .map(|number| json!({"addresses": [format!("127.0.0.{number}")]}))
            .collect();
        let documents = [
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": service, "namespace": "bench"},
                "spec": {"ports": [{"port": 80}]},
            }),
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": format!("{service}-1"), "namespace": "bench",
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": [{"port": port}],
            }),
            match self.shape.kind {
                RouteKind::HttpRoute => self.http_route(route, service, revision),
                RouteKind::HttpProxy => http_proxy(route, service, revision),
                RouteKind::Ingress => ingress(route, service, revision),
            },
        ];
        write(&self.dir, &format!("app{route}.yaml"), &documents)
    }

    fn http_route(&self, route: usize, service: &str, revision: &str) -> Value {
        let parent = if route < self.shape.listener_sets {
            json!({"kind": "ListenerSet", "name": format!("l{route}")})
        } else {
            json!({"name": gateway_name(self.shape.gateway(route))})
        };
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": format!("r{route}"), "namespace": "bench"},
            "spec": {
                "parentRefs": [parent],
                "hostnames": [hostname(route)],
                "rules": [{
                    "filters": [{
                        "type": "ResponseHeaderModifier",
                        "responseHeaderModifier": {"set": [{"name": "x-revision", "value": revision}]},
                    }],
                    "backendRefs": [{"name": service, "port": 80}],
                }],
            },
        })
    }
}

fn http_proxy(route: usize, service: &str, revision: &str) -> Value {
    json!({
        "apiVersion": "projectcontour.io/v1", "kind": "HTTPProxy",
        "metadata": {"name": format!("r{route}"), "namespace": "bench"},
        "spec": {
            "ingressClassName": "bench",
            "virtualhost": {"fqdn": hostname(route)},
            "routes": [{
                "services": [{"name": service, "port": 80}],
                "responseHeadersPolicy": {"set": [{"name": "x-revision", "value": revision}]},
            }],
        },
    })
}

fn ingress(route: usize, service: &str, revision: &str) -> Value {
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": format!("r{route}"), "namespace": "bench"},
        "spec": {
            "ingressClassName": "bench",
            "rules": [{"host": hostname(route), "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": backend},
                {"path": format!("/{revision}"), "pathType": "Exact", "backend": backend},
            ]}}],
        },
    })
}

pub(crate) fn write(dir: &Path, name: &str, documents: &[Value]) -> anyhow::Result<()> {
    let mut text = String::new();
    for document in documents {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(document)?);
    }
    let staged = dir.join(format!(".{name}.new"));
    std::fs::write(&staged, text)?;
    std::fs::rename(staged, dir.join(name))?;
    Ok(())
}
