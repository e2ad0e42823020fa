//! Ten gateways with performance problems, for practicing diagnosis. A test checks that the
//! documented commands reveal each cause. All gateways use the same object names.

mod clients;
mod processor;
mod service;

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use self::clients::Clients;
use self::processor::Crowd;
pub use self::service::{Conduct, Endpoint};
use crate::agent::{AgentUnderTest, Setup};
use crate::manifests::{
    edge, http_listener, http_route, path, rule_to, served, weighted_ref, yaml,
};

/// Host name that clients request.
pub const HOST: &str = "shop.test";

/// The cause of a performance problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cause {
    /// One of three endpoints of a Service responds slowly.
    Endpoint,
    /// All endpoints of a Service respond slowly.
    Backend,
    /// The new version, which gets a tenth of the requests, responds slowly.
    Canary,
    /// A Service fails often, and the route retries its requests after a backoff.
    Retries,
    /// One of two endpoints does not accept connections.
    Unreachable,
    /// The service that authorizes requests responds slowly.
    Authorization,
    /// Some clients read large responses slowly.
    Clients,
    /// The number of concurrent requests exceeds a backend's connection limit.
    Connections,
    /// Other processes compete with Envoy for CPU.
    Processor,
    /// An older route to a slow backend takes the requests meant for a newer route.
    Shadowed,
}

/// A gateway with its backends and clients, stopped on drop.
pub struct SlowGateway {
    /// The agent and its Envoy.
    pub agent: AgentUnderTest,
    /// The endpoint that causes the problem, if any.
    pub culprit: Option<std::net::SocketAddr>,
    _clients: Clients,
    _crowd: Option<Crowd>,
    _endpoints: Vec<Endpoint>,
}

struct Shop {
    endpoints: Vec<Endpoint>,
    objects: Vec<Value>,
    culprit: Option<std::net::SocketAddr>,
}

impl Shop {
    async fn service(&mut self, name: &str, conducts: &[Conduct]) {
        let mut addresses = Vec::new();
        for conduct in conducts {
            let endpoint = Endpoint::start(*conduct).await;
            if !matches!(conduct, Conduct::Prompt) {
                self.culprit = Some(endpoint.address());
            }
            addresses.push(endpoint.address());
            self.endpoints.push(endpoint);
        }
        self.objects.extend(served(name, &addresses));
    }

    fn route(&mut self, name: &str, rule: &Value) {
        let rules = std::slice::from_ref(rule);
        self.objects.push(http_route(name, &[HOST], rules));
    }
}

fn below(name: &str) -> [Value; 1] {
    [path("PathPrefix", &format!("/{name}"))]
}

/// Starts the gateway, and waits until requests are served.
pub async fn start(cause: Cause) -> SlowGateway {
    let late = Conduct::Late(Duration::from_millis(700));
    let mut shop = Shop {
        endpoints: Vec::new(),
        objects: edge(&[http_listener("http", 80, "")]),
        culprit: None,
    };
    let cart = match cause {
        Cause::Retries => vec![Conduct::Overworked],
        Cause::Unreachable => vec![Conduct::Prompt, Conduct::Unreachable],
        Cause::Connections => vec![Conduct::Late(Duration::from_millis(100))],
        _ => vec![Conduct::Prompt; 2],
    };
    let stock = match cause {
        Cause::Endpoint => vec![Conduct::Prompt, Conduct::Prompt, late],
        _ => vec![Conduct::Prompt; 3],
    };
    let search = match cause {
        Cause::Backend => vec![late; 2],
        Cause::Clients => vec![Conduct::Lengthy(16 << 20)],
        _ => vec![Conduct::Prompt; 2],
    };
    let checker = match cause {
        Cause::Authorization => late,
        _ => Conduct::Prompt,
    };
    let next = match cause {
        Cause::Canary | Cause::Shadowed => late,
        _ => Conduct::Prompt,
    };
    shop.service("cart", &cart).await;
    shop.service("stock", &stock).await;
    shop.service("search", &search).await;
    shop.service("checker", &[checker]).await;
    shop.service("stock-2", &[next]).await;

    let mut cart = rule_to("cart", &below("cart"));
    if let Cause::Retries | Cause::Unreachable = cause {
        cart["retry"] = json!({"codes": [503], "attempts": 4, "backoff": "400ms"});
    }
    cart["filters"] = json!([{"type": "ExternalAuth", "externalAuth": {
        "protocol": "HTTP", "backendRef": {"name": "checker", "port": 80}, "http": {}}}]);
    shop.route("cart", &cart);
    let mut stock = rule_to("stock", &below("stock"));
    if let Cause::Canary = cause {
        stock["backendRefs"] = json!([weighted_ref("stock", 9), weighted_ref("stock-2", 1)]);
    }
    shop.route("stock", &stock);
    shop.route("search", &rule_to("search", &below("search")));
    // Without creation timestamps, the route that is first by name wins.
    let other = match cause {
        Cause::Shadowed => below("stock"),
        _ => below("stock-2"),
    };
    shop.route("inventory", &rule_to("stock-2", &other));

    let setup = Setup::with_ports(&[80]).flag("--access-log-free-mib=0");
    let setup = match cause {
        Cause::Connections => setup.wrapper(&["prlimit", "--nofile=640:640"]),
        _ => setup,
    };
    let agent = setup.start(&[("shop.yaml", &yaml(&shop.objects))]);
    agent.wait_ok(&agent.get(80, HOST, "/stock/ready")).await;
    let crowd = match cause {
        Cause::Processor => Some(Crowd::around(&agent)),
        _ => None,
    };
    SlowGateway {
        culprit: shop.culprit,
        _clients: Clients::start(cause, agent.address(80)),
        _crowd: crowd,
        _endpoints: shop.endpoints,
        agent,
    }
}
