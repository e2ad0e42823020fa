//! Builder for an agent under test.

use std::path::{Path, PathBuf};

use super::{AgentUnderTest, ROOT};
use crate::ports::free_port;
use crate::turns::Turn;

/// Options for an agent under test.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent options of a builder"
)]
pub struct Setup {
    pub(super) ports: Vec<u16>,
    pub(super) flags: Vec<String>,
    pub(super) wrapper: Vec<String>,
    pub(super) other_source: bool,
    pub(super) envoy: Option<PathBuf>,
    pub(super) small_disks: bool,
    pub(super) pool: Option<String>,
    pub(super) everywhere: bool,
    pub(super) no_local_endpoints: bool,
    pub(super) agent: Option<PathBuf>,
    unmapped: bool,
    user: Option<u32>,
}

impl Setup {
    /// Creates options for Gateway ports, each mapped to a free local port.
    pub fn with_ports(ports: &[u16]) -> Self {
        Self {
            ports: ports.to_vec(),
            ..Self::default()
        }
    }

    /// Disables the port mapping, for tests in their own network namespace.
    #[must_use]
    pub fn unmapped(mut self) -> Self {
        self.unmapped = true;
        self
    }

    /// Runs the agent as this user, with capabilities in `setpriv` notation.
    #[must_use]
    pub fn user(mut self, id: u32, capabilities: &[&str]) -> Self {
        self.user = Some(id);
        let granted: Vec<String> = std::iter::once("-all".to_owned())
            .chain(capabilities.iter().map(|name| format!("+{name}")))
            .collect();
        let granted = granted.join(",");
        let command = [
            "setpriv".to_owned(),
            format!("--reuid={id}"),
            format!("--regid={id}"),
            "--clear-groups".to_owned(),
            "--no-new-privs".to_owned(),
            format!("--inh-caps={granted}"),
            format!("--ambient-caps={granted}"),
            format!("--bounding-set={granted}"),
        ];
        self.wrapper.extend(command);
        self
    }

    /// Adds an argument to `sesame-agent run`.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Omits the manifest directory. The flags must specify another source.
    #[must_use]
    pub fn without_manifests(mut self) -> Self {
        self.other_source = true;
        self
    }

    /// Puts directories on small file systems. See [`AgentUnderTest::visible`].
    #[must_use]
    pub fn small_disks(mut self) -> Self {
        self.small_disks = true;
        self
    }

    /// Gives each Gateway an address from `network`, without port mapping.
    #[must_use]
    pub fn address_pool(mut self, network: &str) -> Self {
        self.pool = Some(network.to_owned());
        self
    }

    /// Makes the Gateways listen on all of the host's addresses.
    #[must_use]
    pub fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// Rejects endpoints on the host itself, as agents do by default.
    #[must_use]
    pub fn no_local_endpoints(mut self) -> Self {
        self.no_local_endpoints = true;
        self
    }

    /// Uses the given Envoy binary.
    #[must_use]
    pub fn envoy(mut self, binary: &Path) -> Self {
        self.envoy = Some(binary.to_owned());
        self
    }

    /// Uses the given agent binary.
    #[must_use]
    pub fn agent(mut self, binary: &Path) -> Self {
        self.agent = Some(binary.to_owned());
        self
    }

    /// Prefixes the agent's command line with `command`.
    #[must_use]
    pub fn wrapper(mut self, command: &[&str]) -> Self {
        self.wrapper = command.iter().map(ToString::to_string).collect();
        self
    }

    /// Writes the manifests (file name and YAML) and starts the agent.
    pub fn start(self, files: &[(&str, &str)]) -> AgentUnderTest {
        let mut agent = self.prepare();
        for (name, yaml) in files {
            agent.write(name, yaml);
        }
        agent.restart();
        agent
    }

    /// Creates the directories without starting the agent.
    pub fn prepare(self) -> AgentUnderTest {
        let turn = Turn::acquire();
        self.make(Some(turn))
    }

    /// Like [`Self::prepare`], but for a second host that shares the first host's turn.
    pub fn prepare_beside(self, _first: &AgentUnderTest) -> AgentUnderTest {
        self.make(None)
    }

    fn make(self, turn: Option<Turn>) -> AgentUnderTest {
        let directory = tempfile::Builder::new()
            .prefix("sesame-")
            .tempdir_in(ROOT)
            .expect("a directory");
        for name in ["m", "r", "s"] {
            std::fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        if let Some(user) = self.user {
            for name in ["", "m", "r", "s"] {
                std::os::unix::fs::chown(directory.path().join(name), Some(user), Some(user))
                    .expect("change the directory's owner");
            }
        }
        let ports = self
            .ports
            .iter()
            .map(|port| (*port, if self.unmapped { *port } else { free_port() }))
            .collect();
        AgentUnderTest {
            setup: self,
            directory,
            ports,
            child: None,
            _turn: turn,
        }
    }
}
