//! Locates a running agent's directories. Names of objects are hashed before they become paths.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sesame_files::open::{self, OpenError, Rule};
use sesame_gateway_api::api::NamespacedName;

use crate::access_log::ACCESS_LOG;
use crate::envoy::admin::MAX_SOCKET_PATH;
use crate::envoy::process::identity::{Identity, PID_FILE};
use crate::host::{create_directory, entries, remove_directory_if_exists};
use sesame_render::layout::{XdsLayout, file_name};

/// The state and the runtime directory.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    state: PathBuf,
    runtime: PathBuf,
}

/// The directories of one Gateway.
#[derive(Clone, Debug)]
pub(super) struct GatewayDirectories {
    /// Accepted generations; survives reboots.
    pub(super) state: PathBuf,
    /// Sockets, pid file, log.
    pub(super) runtime: PathBuf,
}

/// Error for a directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoriesError {
    /// A directory cannot be created, or does not belong to this user.
    #[error("{path}: {source}; set another one with {flag}")]
    Io {
        /// Path of the directory.
        path: PathBuf,
        /// Option that sets the directory.
        flag: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// Other users can write to a directory.
    #[error("{flag} {source}; or set another one with {flag}")]
    Untrusted {
        /// Option that sets the directory.
        flag: &'static str,
        /// The problem with the directory.
        source: OpenError,
    },
    /// The paths of Unix sockets would be too long.
    #[error(
        "{path} is too long: the paths of Unix sockets in it would have {length} characters, maximum {MAX_SOCKET_PATH}; set a shorter one with --runtime-dir"
    )]
    TooLong {
        /// The runtime directory.
        path: PathBuf,
        /// Length of the longest socket path, in characters.
        length: usize,
    },
}

impl Directories {
    /// Creates both directories, for this user only.
    pub(super) fn create(state: &Path, runtime: &Path) -> Result<Self, DirectoriesError> {
        for (path, flag) in [(state, "--state-dir"), (runtime, "--runtime-dir")] {
            // A symbolic link to a directory is fine: an operator made it on purpose.
            if !path.is_dir() {
                create_directory(path).map_err(at(path, flag))?;
            }
            // Another user with write access could plant links, pipes and forged generations.
            open::check_directory(path, Rule::Named)
                .map_err(|source| DirectoriesError::Untrusted { flag, source })?;
        }
        let directories = Self {
            state: fs::canonicalize(state).map_err(at(state, "--state-dir"))?,
            runtime: fs::canonicalize(runtime).map_err(at(runtime, "--runtime-dir"))?,
        };
        let longest = directories
            .gateway(&NamespacedName::default())
            .admin_socket()
            .as_os_str()
            .len();
        if longest > MAX_SOCKET_PATH {
            return Err(DirectoriesError::TooLong {
                path: directories.runtime,
                length: longest,
            });
        }
        Ok(directories)
    }

    /// Returns the runtime directory as an absolute path.
    pub(super) fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Returns the state directory as an absolute path.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the directory that stores the last good manifests.
    pub(super) fn last_good(&self) -> PathBuf {
        self.state.join("last-good")
    }

    /// Returns the directory with the copies of fetched key sets.
    pub(super) fn key_sets(&self) -> PathBuf {
        self.state.join("key-sets")
    }

    /// Returns the directory to which a Gateway's state is moved before it is removed.
    pub(super) fn withdrawn(&self) -> PathBuf {
        self.state.join("withdrawn")
    }

    /// Returns the state directories of all Gateways.
    pub(super) fn gateway_states(&self) -> Vec<PathBuf> {
        Self::states_below(&self.state)
    }

    /// Returns the state directories of all Gateways in `state`, a directory that an agent may be
    /// using.
    pub(super) fn states_below(state: &Path) -> Vec<PathBuf> {
        entries(&state.join("gateways")).unwrap_or_default()
    }

    /// Returns the PIDs of the Envoys that an earlier agent left running, according to its pid
    /// files.
    pub(super) fn envoy_pids(&self) -> Vec<u32> {
        Self::envoys_below(&self.runtime, None)
    }

    /// Returns the PIDs of all Gateways' Envoys, or of one Gateway's Envoy, in a runtime directory
    /// that an agent may be using.
    pub(super) fn envoys_below(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<u32> {
        let runtimes = Self::runtimes_below(runtime, gateway);
        let identities = runtimes
            .iter()
            .filter_map(|runtime| Identity::read(&runtime.join(PID_FILE)));
        identities.map(|identity| identity.pid).collect()
    }

    /// Removes the files that a withdrawn Gateway's Envoy watched, including keys. The Envoy must
    /// have exited.
    pub(super) fn forget_runtime(&self, gateway: &NamespacedName) {
        let directory = self.gateway(gateway).runtime;
        if let Err(error) = remove_directory_if_exists(&directory) {
            tracing::warn!(%gateway, %error, directory = %directory.display(), "cannot remove the files of the withdrawn Gateway's Envoy");
        }
    }

    /// Returns the directories of one Gateway.
    pub(super) fn gateway(&self, gateway: &NamespacedName) -> GatewayDirectories {
        GatewayDirectories {
            state: Self::state_of(&self.state, gateway),
            runtime: self.runtime.join("gateways").join(short_name(gateway)),
        }
    }

    /// Returns the runtime directories of all Gateways, or of one, in a runtime directory that an
    /// agent may be using.
    pub(super) fn runtimes_below(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<PathBuf> {
        let all = runtime.join("gateways");
        match gateway {
            Some(gateway) => vec![all.join(short_name(gateway))],
            None => entries(&all).unwrap_or_default(),
        }
    }

    /// Returns one Gateway's state directory in `state`, a directory that an agent may be using.
    pub(super) fn state_of(state: &Path, gateway: &NamespacedName) -> PathBuf {
        state.join("gateways").join(short_name(gateway))
    }
}

fn at(path: &Path, flag: &'static str) -> impl FnOnce(io::Error) -> DirectoriesError {
    let path = path.to_owned();
    move |source| DirectoriesError::Io { path, flag, source }
}

fn short_name(gateway: &NamespacedName) -> String {
    let mut name = file_name(&gateway.to_string());
    name.truncate(16);
    name
}

impl GatewayDirectories {
    /// Returns the socket of Envoy's admin interface.
    pub(super) fn admin_socket(&self) -> PathBuf {
        self.runtime.join("admin.sock")
    }

    /// Returns the link to the access log.
    pub(super) fn access_log(&self) -> PathBuf {
        self.runtime.join(ACCESS_LOG)
    }

    /// Returns the name of this Gateway's directories, which is a hash.
    pub(super) fn name(&self) -> String {
        let name = self.runtime.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Returns the names of the existing endpoint files.
    pub(super) fn endpoint_files(&self) -> BTreeSet<String> {
        let all = entries(&self.layout().root().join("eds")).unwrap_or_default();
        let with_file = all.iter().filter(|path| path.join("eds.pb").is_file());
        let names = with_file.filter_map(|path| path.file_name()?.to_str());
        names.map(str::to_owned).collect()
    }

    /// Returns the layout of the files that Envoy watches.
    pub(super) fn layout(&self) -> XdsLayout {
        XdsLayout::new(self.runtime.join("xds"))
    }
}
