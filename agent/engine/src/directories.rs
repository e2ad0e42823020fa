//! Locates an agent's directories. Object names are hashed before they become path components.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sesame_files::open::{self, OpenError, Rule};
use sesame_kinds::api::NamespacedName;

use sesame_envoy::access_log::ACCESS_LOG;
use sesame_envoy::admin::MAX_SOCKET_PATH;
use sesame_envoy::process::identity::{Identity, PID_FILE};
use sesame_host::{create_directory, entries, remove_directory_if_exists};
use sesame_render::layout::{XdsLayout, file_name, password_socket};

#[derive(Clone, Debug)]
pub(super) struct Directories {
    state: PathBuf,
    runtime: PathBuf,
}

#[derive(Clone, Debug)]
pub(super) struct GatewayDirectories {
    /// Accepted generations, which must survive a reboot.
    pub(super) state: PathBuf,
    /// Sockets, the PID file and Envoy's files.
    pub(super) runtime: PathBuf,
}

/// Error for a directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoriesError {
    /// A directory cannot be created, or is not owned by the agent's user.
    #[error("{path}: {source}; set another one with {flag}")]
    Io {
        /// Path of the directory.
        path: PathBuf,
        /// Option that sets the path.
        flag: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// Other users can write to a directory.
    #[error("{flag} {source}; or set another one with {flag}")]
    Untrusted {
        /// Option that sets the path.
        flag: &'static str,
        /// Why the directory is not trusted.
        source: OpenError,
    },
    /// The paths of Unix sockets would be too long.
    #[error(
        "{path} is too long: the paths of Unix sockets in it would have {length} bytes, maximum {MAX_SOCKET_PATH}; set a shorter one with --runtime-dir"
    )]
    TooLong {
        /// The runtime directory.
        path: PathBuf,
        /// Length of the longest socket path, in bytes.
        length: usize,
    },
}

impl Directories {
    /// Creates missing directories that only this user can access.
    pub(super) fn create(state: &Path, runtime: &Path) -> Result<Self, DirectoriesError> {
        for (path, flag) in [(state, "--state-dir"), (runtime, "--runtime-dir")] {
            // Follow a symbolic link, because only an operator can have created it.
            if !path.is_dir() {
                create_directory(path).map_err(at(path, flag))?;
            }
            // A user with write access could plant links, pipes and forged generations.
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

    pub(super) fn runtime(&self) -> &Path {
        &self.runtime
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    pub(super) fn last_good(&self) -> PathBuf {
        self.state.join("last-good")
    }

    pub(super) fn key_sets(&self) -> PathBuf {
        self.state.join("key-sets")
    }

    /// Accounts and certificates by ACME.
    pub(super) fn acme(&self) -> PathBuf {
        self.state.join("acme")
    }

    /// A withdrawn Gateway's state is moved here before it is removed.
    pub(super) fn withdrawn(&self) -> PathBuf {
        self.state.join("withdrawn")
    }

    pub(super) fn gateway_states(&self) -> Vec<PathBuf> {
        Self::states_below(&self.state)
    }

    pub(super) fn states_below(state: &Path) -> Vec<PathBuf> {
        entries(&state.join("gateways")).unwrap_or_default()
    }

    pub(super) fn envoy_pids(&self) -> Vec<u32> {
        Self::envoys_below(&self.runtime, None)
    }

    pub(super) fn envoys_below(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<u32> {
        let runtimes = Self::runtimes_below(runtime, gateway);
        let identities = runtimes
            .iter()
            .filter_map(|runtime| Identity::read(&runtime.join(PID_FILE)));
        identities.map(|identity| identity.pid).collect()
    }

    /// Also removes keys. The Gateway's Envoy must have exited.
    pub(super) fn forget_runtime(&self, gateway: &NamespacedName) {
        let directory = self.gateway(gateway).runtime;
        if let Err(error) = remove_directory_if_exists(&directory) {
            tracing::warn!(%gateway, %error, directory = %directory.display(), "cannot remove the files of the withdrawn Gateway's Envoy");
        }
    }

    pub(super) fn gateway(&self, gateway: &NamespacedName) -> GatewayDirectories {
        GatewayDirectories {
            state: Self::state_of(&self.state, gateway),
            runtime: self.runtime.join("gateways").join(short_name(gateway)),
        }
    }

    pub(super) fn runtimes_below(runtime: &Path, gateway: Option<&NamespacedName>) -> Vec<PathBuf> {
        let all = runtime.join("gateways");
        match gateway {
            Some(gateway) => vec![all.join(short_name(gateway))],
            None => entries(&all).unwrap_or_default(),
        }
    }

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
    pub(super) fn admin_socket(&self) -> PathBuf {
        self.runtime.join("admin.sock")
    }

    pub(super) fn password_socket(&self) -> PathBuf {
        password_socket(&self.admin_socket())
    }

    pub(super) fn access_log(&self) -> PathBuf {
        self.runtime.join(ACCESS_LOG)
    }

    pub(super) fn name(&self) -> String {
        let name = self.runtime.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub(super) fn endpoint_files(&self) -> BTreeSet<String> {
        let all = entries(&self.layout().root().join("eds")).unwrap_or_default();
        let with_file = all.iter().filter(|path| path.join("eds.pb").is_file());
        let names = with_file.filter_map(|path| path.file_name()?.to_str());
        names.map(str::to_owned).collect()
    }

    pub(super) fn layout(&self) -> XdsLayout {
        XdsLayout::new(self.runtime.join("xds"))
    }
}
