//! A Gateway that serves all kinds of traffic, and load for each kind.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agent::{AgentUnderTest, Setup};
use crate::backend::Backend;
use crate::certs::Authority;
use crate::grpc;
use crate::load::{Load, Plan};
use crate::manifests::{
    edge, http_listener, http_route, l4_listener, on_listener, route, rule_to, served,
    tls_listener, weighted_ref, yaml,
};
use crate::streams::{Kind, LongStream, echo, grpc_echo};

/// Host name of the HTTP route.
pub const HOST: &str = "mixed.test";
const GRPC_HOST: &str = "grpc.mixed.test";
const CALLS_HOST: &str = "calls.mixed.test";
const TLS_HOST: &str = "tls.mixed.test";
const TCP_PORT: u16 = 5001;
const TLS_PORT: u16 = 5002;

/// A running agent with its backends.
pub struct Mixed {
    /// The agent.
    pub agent: AgentUnderTest,
    authority: Authority,
    _backend: Backend,
}

/// The running load, and a stream of each kind.
pub struct Traffic {
    /// The load. None of its requests may fail.
    pub load: Load,
    streams: Vec<LongStream>,
    restarts: Vec<(Instant, Instant)>,
}

impl Mixed {
    /// The ports that the Gateway needs.
    pub const PORTS: [u16; 3] = [80, TCP_PORT, TLS_PORT];

    /// Starts the agent with `more` additional Services and routes.
    pub async fn start(setup: Setup, more: usize) -> Self {
        let backend = Backend::start("a").await;
        let authority = Authority::new("streams");
        let leaf = authority.issue(&[TLS_HOST]);
        let mut objects = edge(&[
            http_listener("http", 80, ""),
            l4_listener("tcp", TCP_PORT, "TCP"),
            tls_listener("tls", TLS_PORT, "", None),
        ]);
        objects.extend(served("app", &[backend.address()]));
        objects.extend(served("calls", &[grpc_echo().await]));
        objects.extend(served("tcp", &[echo(None).await]));
        objects.extend(served("tls", &[echo(Some(leaf.acceptor())).await]));
        let app = [rule_to("app", &[])];
        let rule = |name: &str| serde_json::json!({"backendRefs": [weighted_ref(name, 1)]});
        let on = |route: Value, listener: &str| on_listener(route, listener);
        objects.push(on(http_route("app", &[HOST], &app), "http"));
        objects.push(on(
            route("GRPCRoute", "unary", &[GRPC_HOST], &[rule("app")]),
            "http",
        ));
        objects.push(on(
            route("GRPCRoute", "calls", &[CALLS_HOST], &[rule("calls")]),
            "http",
        ));
        objects.push(on(route("TCPRoute", "tcp", &[], &[rule("tcp")]), "tcp"));
        objects.push(on(
            route("TLSRoute", "tls", &[TLS_HOST], &[rule("tls")]),
            "tls",
        ));
        for index in 0..more {
            let name = format!("other-{index}");
            objects.extend(served(&name, &[backend.address()]));
            let rules = [rule_to(&name, &[])];
            objects.push(on(
                http_route(&name, &[&format!("{name}.test")], &rules),
                "http",
            ));
        }
        let agent = setup.start(&[("all.yaml", &yaml(&objects))]);
        let request = agent.get(80, HOST, "/");
        agent.wait_ok(&request).await;
        agent
            .wait_status("the Gateway is serving", |status| {
                status["gateways"][0]["state"] == "Serving"
            })
            .await;
        Self {
            agent,
            authority,
            _backend: backend,
        }
    }

    /// Starts load over reused and new connections, and a stream of each kind.
    pub fn traffic(&self) -> Traffic {
        let agent = &self.agent;
        let call = grpc::call(agent.address(80), GRPC_HOST, "echo.Echo/Once");
        let plan = Plan {
            good: |reply| reply.status == 200 && matches!(grpc::status(reply), None | Some(0)),
            ..Plan::new(vec![agent.get(80, HOST, "/"), call])
        };
        let streams = [
            (Kind::Tcp, TCP_PORT),
            (
                Kind::PassThrough(TLS_HOST.to_owned(), self.authority.trust()),
                TLS_PORT,
            ),
            (Kind::WebSocket(HOST.to_owned()), 80),
            (Kind::Grpc(CALLS_HOST.to_owned()), 80),
        ];
        Traffic {
            load: Load::start(&plan),
            streams: streams
                .map(|(kind, port)| LongStream::start(kind, agent.address(port)))
                .into(),
            restarts: Vec::new(),
        }
    }
}

impl Traffic {
    /// Records that Envoy was replaced between `begin` and now.
    pub fn replaced(&mut self, begin: Instant) {
        self.restarts.push((begin, Instant::now()));
    }

    /// Stops all traffic. Asserts that no request failed, and that streams lasted until their Envoy
    /// had drained.
    pub async fn end(self, scenario: &str, drain: Duration) {
        let Self {
            load,
            streams,
            restarts,
        } = self;
        let report = load.stop().await;
        report.print(scenario);
        let mut cut = Vec::new();
        for stream in streams {
            let report = stream.stop().await;
            cut.push(format!("{} {}", report.lives.len(), report.kind));
            report.assert_announced(&restarts, drain);
        }
        eprintln!("{scenario}: streams cut after draining: {}", cut.join(", "));
        report.assert_clean();
    }
}
