//! A plain Envoy with the same routes and filters as `Policies::Protect`, written by hand. Routes are
//! in a file that Envoy watches; everything else is static.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Map, Value, json};
use sesame_tests::processes::memory_mib;

use super::manifests::{self, Policies};

const TYPES: &str = "type.googleapis.com/envoy";
const ADDRESSES: &str = "addresses";
const HEADERS: &str = "headers";

pub(crate) struct Plain {
    dir: tempfile::TempDir,
    program: PathBuf,
    port: u16,
    policies: Policies,
    hosts: Vec<Value>,
    process: Option<Child>,
}

impl Plain {
    pub(crate) fn new(
        program: &Path,
        policies: Policies,
        routes: usize,
        backend: u16,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("sb").tempdir_in(
            if Path::new("/dev/shm").is_dir() {
                "/dev/shm"
            } else {
                "/tmp"
            },
        )?;
        std::fs::create_dir(dir.path().join("rds"))?;
        let mut plain = Self {
            dir,
            program: program.to_owned(),
            port: TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
            policies,
            hosts: Vec::new(),
            process: None,
        };
        plain.hosts = (0..routes).map(|it| plain.host(it, "first")).collect();
        plain.write_table()?;
        plain.publish()?;
        let bootstrap = plain.bootstrap(routes, backend);
        std::fs::write(plain.path("envoy.json"), serde_json::to_vec(&bootstrap)?)?;
        Ok(plain)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        let child = Command::new(&self.program)
            .args(["--disable-hot-restart", "--log-level", "error", "-c"])
            .arg(self.path("envoy.json"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(child);
        Ok(())
    }

    pub(crate) fn memory_mib(&self) -> f64 {
        let pid = self.process.as_ref().map(Child::id);
        pid.map_or(0.0, |pid| memory_mib(pid).0)
    }

    /// Prepares a changed route. The change is not visible until [`Self::publish`].
    pub(crate) fn stage(&mut self, route: usize, revision: &str) -> anyhow::Result<()> {
        let host = self.host(route, revision);
        if let Some(place) = self.hosts.get_mut(route) {
            *place = host;
        }
        self.write_table()
    }

    pub(crate) fn publish(&self) -> std::io::Result<()> {
        std::fs::rename(self.path("staged.json"), self.path("rds/rds.json"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_table(&self) -> anyhow::Result<()> {
        let mut table = json!({
            "@type": format!("{TYPES}.config.route.v3.RouteConfiguration"),
            "name": "routes",
            "virtual_hosts": self.hosts,
        });
        if self.policies == Policies::Protect {
            table["typed_per_filter_config"] = filters();
        }
        let response = json!({"version_info": "1", "resources": [table]});
        std::fs::write(self.path("staged.json"), serde_json::to_vec(&response)?)?;
        Ok(())
    }

    fn host(&self, route: usize, revision: &str) -> Value {
        let mut action = json!({"cluster": format!("s{route}"), "timeout": "0s"});
        if self.policies != Policies::None {
            action["timeout"] = json!("30s");
        }
        let mut own = Map::new();
        if self.policies == Policies::ProtectEach {
            own.insert("typed_per_filter_config".to_owned(), filters());
        }
        let header = json!({"key": "x-revision", "value": revision});
        let mut rule = json!({
            "match": {"prefix": "/"},
            "route": action,
            "response_headers_to_add": [
                {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
            ],
        });
        if let Some(fields) = rule.as_object_mut() {
            fields.append(&mut own);
        }
        json!({
            "name": format!("h{route}"),
            "domains": [manifests::hostname(route)],
            "routes": [rule],
        })
    }

    fn bootstrap(&self, routes: usize, backend: u16) -> Value {
        let socket =
            |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
        let clusters = (0..routes).map(|route| {
            let endpoint = json!({"endpoint": {"address": socket(backend)}});
            json!({
                "name": format!("s{route}"),
                "load_assignment": {
                    "cluster_name": format!("s{route}"),
                    "endpoints": [{"lb_endpoints": [endpoint]}],
                },
            })
        });
        let clusters: Vec<Value> = clusters.collect();
        let off = |name: &str, type_: &str| {
            json!({"name": name, "disabled": true, "typed_config": {
                "@type": format!("{TYPES}.extensions.filters.http.{type_}"),
            }})
        };
        let last = format!("{TYPES}.extensions.filters.http.router.v3.Router");
        let manager = json!({
            "@type": format!(
                "{TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
            ),
            "stat_prefix": "http",
            "rds": {"route_config_name": "routes", "config_source": {"path_config_source": {
                "path": self.path("rds/rds.json"),
                "watched_directory": {"path": self.path("rds")},
            }}},
            "http_filters": [
                off(ADDRESSES, "rbac.v3.RBAC"),
                off(HEADERS, "header_mutation.v3.HeaderMutation"),
                {"name": "router", "typed_config": {"@type": last}},
            ],
        });
        json!({"static_resources": {
            "clusters": clusters,
            "listeners": [{
                "name": "http",
                "address": socket(self.port),
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": manager,
                }]}],
            }],
        }, "node": {"id": "plain", "cluster": "plain"}})
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It may have exited by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn filters() -> Value {
    let denied = json!({"remote_ip": {"address_prefix": "192.0.2.0", "prefix_len": 24}});
    let policy = json!({"permissions": [{"any": true}], "principals": [denied]});
    let header = json!({"key": "x-frame-options", "value": "DENY"});
    let append = json!({"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"});
    json!({
        ADDRESSES: {
            "@type": format!("{TYPES}.extensions.filters.http.rbac.v3.RBACPerRoute"),
            "rbac": {"rules": {"action": "DENY", "policies": {"denied": policy}}},
        },
        HEADERS: {
            "@type": format!("{TYPES}.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute"),
            "mutations": {"response_mutations": [{"append": append}]},
        },
    })
}
