//! Place of an Envoy in its line: hot restarts of one Envoy share a base id and count epochs.
//!
//! The base id names the shared memory, and with it the line; the sockets over which a line hands over lie in the
//! Envoy's own directory, because sockets without a file would be open to every user of the host.

use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Directory of Envoy's shared memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// Number of base ids. Envoy multiplies them by ten, in 32 bits with a sign: sockets of larger ones would have other names.
const BASE_IDS: u64 = 200_000_000;
/// Time from the end of the drain to the end of the first Envoy.
const AFTER_DRAIN: Duration = Duration::from_secs(1);
/// Length of the longest name of a socket, with its separator and one more byte: `/hot_udp_parent_2000000009`.
pub(crate) const LONGEST_SOCKET_NAME: usize = 27;

/// Place in a line of Envoys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// Base id of the whole line.
    pub base_id: u32,
    /// Epoch, from 0.
    pub epoch: u32,
}

impl Lineage {
    /// Returns the first place of a new line.
    pub fn fresh() -> Self {
        loop {
            let random = RandomState::new().build_hasher().finish() % BASE_IDS;
            let first = Self {
                base_id: u32::try_from(random).unwrap_or(1).max(1),
                epoch: 0,
            };
            if !first.shared_memory().exists() {
                return first;
            }
        }
    }

    /// Returns the place that follows by hot restart.
    #[must_use]
    pub fn next(self) -> Self {
        Self {
            epoch: self.epoch.saturating_add(1),
            ..self
        }
    }

    /// Returns the arguments that put an Envoy into its place.
    pub(crate) fn arguments(self, directory: &Path, drain_time: Duration) -> Vec<OsString> {
        let shutdown = (drain_time + AFTER_DRAIN).as_secs();
        vec![
            "--base-id".into(),
            self.base_id.to_string().into(),
            "--restart-epoch".into(),
            self.epoch.to_string().into(),
            "--socket-path".into(),
            directory.join("hot").into(),
            "--socket-mode".into(),
            "600".into(),
            "--parent-shutdown-time-s".into(),
            shutdown.to_string().into(),
        ]
    }

    /// Returns the time after which a first Envoy ends by itself after a hot restart.
    pub(crate) fn parent_ends_after(drain_time: Duration) -> Duration {
        drain_time + AFTER_DRAIN
    }

    /// Splits the arguments of an Envoy into those that do not depend on its place in a line, and that place;
    /// `None` if it cannot be hot-restarted.
    pub(crate) fn split(arguments: &[String]) -> (Vec<String>, Option<Self>) {
        let mut rest = Vec::new();
        let (mut base_id, mut epoch) = (None, None);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--disable-hot-restart" => {}
                "--base-id" => base_id = arguments.next().and_then(|value| value.parse().ok()),
                "--restart-epoch" => epoch = arguments.next().and_then(|value| value.parse().ok()),
                "--socket-path" | "--socket-mode" | "--parent-shutdown-time-s" => {
                    arguments.next();
                }
                _ => rest.push(argument.clone()),
            }
        }
        let lineage = base_id
            .zip(epoch)
            .map(|(base_id, epoch)| Self { base_id, epoch });
        (rest, lineage)
    }

    /// Returns the path of the line's shared memory.
    pub(crate) fn shared_memory(self) -> PathBuf {
        Path::new(SHARED_MEMORY).join(format!(
            "envoy_shared_memory_{}",
            u64::from(self.base_id) * 10
        ))
    }

    /// Removes the sockets of this Envoy, which has ended.
    pub(crate) fn remove_sockets(self, directory: &Path) {
        for socket in self.sockets(directory) {
            let _ = fs::remove_file(socket);
        }
    }

    /// Removes the sockets of this Envoy, and the shared memory of the line, which has ended with it. Envoy does not, and a line
    /// that starts anew has another name.
    pub(crate) fn remove(self, directory: &Path) {
        self.remove_sockets(directory);
        let _ = fs::remove_file(self.shared_memory());
    }

    /// Returns the paths of the sockets of this Envoy.
    fn sockets(self, directory: &Path) -> [PathBuf; 4] {
        ["child", "parent", "udp_child", "udp_parent"].map(|role| self.socket(directory, role))
    }

    /// Returns the paths of the sockets on which it hears from the Envoy before.
    pub(crate) fn sockets_of_child(self, directory: &Path) -> [PathBuf; 2] {
        ["child", "udp_child"].map(|role| self.socket(directory, role))
    }

    fn socket(self, directory: &Path, role: &str) -> PathBuf {
        let id = u64::from(self.base_id) * 10 + u64::from(self.epoch % 3);
        directory.join(format!("hot_{role}_{id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_from_the_arguments_and_is_not_part_of_the_settings() {
        let lineage = Lineage {
            base_id: 7,
            epoch: 3,
        };
        let mut arguments = vec!["--config-path".to_owned(), "/b.pb".to_owned()];
        let settings = arguments.clone();
        arguments.extend(
            lineage
                .arguments(Path::new("/run/x"), Duration::from_secs(9))
                .iter()
                .map(|a| a.to_string_lossy().into_owned()),
        );
        assert_eq!(
            Lineage::split(&arguments),
            (settings.clone(), Some(lineage))
        );
        arguments = settings.clone();
        arguments.push("--disable-hot-restart".to_owned());
        assert_eq!(Lineage::split(&arguments), (settings, None));
    }

    #[test]
    fn three_sockets_names_go_round_and_never_meet_their_neighbours() {
        let first = Lineage {
            base_id: u32::try_from(BASE_IDS).unwrap(),
            epoch: 0,
        };
        let directory = Path::new("");
        assert_ne!(first.sockets(directory), first.next().sockets(directory));
        assert_eq!(
            first.sockets(directory),
            first.next().next().next().sockets(directory)
        );
        assert!(i32::try_from(BASE_IDS * 10 + 2).is_ok());
        let longest = first.next().sockets(directory);
        assert!(
            longest
                .iter()
                .all(|path| path.as_os_str().len() < LONGEST_SOCKET_NAME)
        );
    }
}
