//! Options that an agent under test is started with.

use std::path::{Path, PathBuf};

use super::{AgentUnderTest, ROOT};
use crate::ports::free_port;
use crate::turns::Turn;

/// Holds the options of an agent under test.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a builder's choices, each by itself"
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
    /// An agent whose Gateways may use these ports (as seen from outside; each is mapped to a free one).
    pub fn with_ports(ports: &[u16]) -> Self {
        Self {
            ports: ports.to_vec(),
            ..Self::default()
        }
    }

    /// Ports are those that are seen from outside: for a network namespace of the test's own.
    #[must_use]
    pub fn unmapped(mut self) -> Self {
        self.unmapped = true;
        self
    }

    /// The agent is an ordinary user's, who has these capabilities (as `setpriv` names them) and may pass them on.
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

    /// One more argument of `run`.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Its flags say where its configuration comes from; else it is the directory of manifests.
    #[must_use]
    pub fn without_manifests(mut self) -> Self {
        self.other_source = true;
        self
    }

    /// The agent's directories are small file systems of their own, which nobody else sees: see
    /// [`AgentUnderTest::visible`].
    #[must_use]
    pub fn small_disks(mut self) -> Self {
        self.small_disks = true;
        self
    }

    /// Its Gateways have addresses of their own in this network, not the loopback's, and their ports are not mapped.
    #[must_use]
    pub fn address_pool(mut self, network: &str) -> Self {
        self.pool = Some(network.to_owned());
        self
    }

    /// Its Gateways listen on all addresses of the host.
    #[must_use]
    pub fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// It refuses endpoints on the host itself, as every agent does that nobody told otherwise.
    #[must_use]
    pub fn no_local_endpoints(mut self) -> Self {
        self.no_local_endpoints = true;
        self
    }

    /// Another Envoy than the usual one.
    #[must_use]
    pub fn envoy(mut self, binary: &Path) -> Self {
        self.envoy = Some(binary.to_owned());
        self
    }

    /// Another file of the agent than the usual one.
    #[must_use]
    pub fn agent(mut self, binary: &Path) -> Self {
        self.agent = Some(binary.to_owned());
        self
    }

    /// A command that runs the agent's command line, which is appended to it.
    #[must_use]
    pub fn wrapper(mut self, command: &[&str]) -> Self {
        self.wrapper = command.iter().map(ToString::to_string).collect();
        self
    }

    /// Writes the files (name and YAML) and starts the agent.
    pub fn start(self, files: &[(&str, &str)]) -> AgentUnderTest {
        let mut agent = self.prepare();
        for (name, yaml) in files {
            agent.write(name, yaml);
        }
        agent.restart();
        agent
    }

    /// Makes the directories, but starts nothing.
    pub fn prepare(self) -> AgentUnderTest {
        let turn = Turn::take();
        self.make(Some(turn))
    }

    /// The same for another host of a test that has one already.
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
                    .expect("give the directory away");
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
