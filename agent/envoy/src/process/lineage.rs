//! Lineages: sequences of Envoy processes that take over from each other by hot restart.
//!
//! All Envoy processes in a lineage share a base ID. Epochs count from 0. The first Envoy writes
//! the base ID to a file. If the command line contained the ID, any user could create the shared
//! memory first, and Envoy would abort. The hot restart sockets are files, because any user could
//! connect to abstract sockets.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sesame_files::open::{self, Rule};

use super::connection_ids;
use sesame_host::durable;

pub(super) const SHARED_MEMORY: &str = "/dev/shm";
/// Written by the first Envoy of the newest lineage.
const BASE_ID_FILE: &str = "base-id";
const MAX_BASE_ID_FILE: u64 = 32;
/// Time between the end of the previous Envoy's drain and its exit.
const AFTER_DRAIN: Duration = Duration::from_secs(1);
/// Length of `/hot_udp_parent_18446744072098938870`, plus one spare byte.
pub(crate) const LONGEST_SOCKET_NAME: usize = 37;

/// An Envoy's place in a lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// Base ID, or `None` until read from the first Envoy's file.
    pub base_id: Option<u32>,
    /// Restart epoch, starting at 0.
    pub epoch: u32,
}

impl Lineage {
    const NEW: Self = Self {
        base_id: None,
        epoch: 0,
    };

    /// Empties the base ID file, which may contain an earlier lineage's ID. Envoy keeps an existing
    /// file's mode of 0600, but other users could read a new file.
    pub(crate) fn begin(directory: &Path) -> io::Result<Self> {
        durable::replace_file(&directory.join(BASE_ID_FILE), b"")?;
        Ok(Self::NEW)
    }

    /// Returns true if this Envoy continues the lineage of `earlier`. If the base ID of `earlier`
    /// is unknown, reads it from the file, which is valid until a new lineage begins.
    pub(crate) fn continues(self, earlier: Option<Self>, directory: &Path) -> bool {
        let earlier = earlier.and_then(|line| line.resolve(directory).base_id);
        self.epoch > 0 && self.base_id.is_some() && self.base_id == earlier
    }

    #[must_use]
    pub(crate) fn resolve(self, directory: &Path) -> Self {
        let read = || {
            let path = directory.join(BASE_ID_FILE);
            let text = open::read_text(&path, Rule::Own, MAX_BASE_ID_FILE).ok()?;
            text.trim().parse().ok()
        };
        Self {
            base_id: self.base_id.or_else(read),
            ..self
        }
    }

    /// Returns the successor's place in a hot restart.
    #[must_use]
    pub fn next(self) -> Self {
        Self {
            epoch: self.epoch.saturating_add(1),
            ..self
        }
    }

    pub(crate) fn arguments(self, directory: &Path, drain_time: Duration) -> Vec<OsString> {
        let shutdown = (drain_time + AFTER_DRAIN).as_secs();
        let mut arguments: Vec<OsString> = match self.base_id {
            Some(base_id) => vec!["--base-id".into(), base_id.to_string().into()],
            None => vec![
                "--use-dynamic-base-id".into(),
                "--base-id-path".into(),
                directory.join(BASE_ID_FILE).into(),
            ],
        };
        arguments.extend([
            "--restart-epoch".into(),
            self.epoch.to_string().into(),
            "--socket-path".into(),
            directory.join("hot").into(),
            "--socket-mode".into(),
            "600".into(),
            "--parent-shutdown-time-s".into(),
            shutdown.to_string().into(),
        ]);
        arguments
    }

    /// Returns the time between a hot restart and the previous Envoy's exit.
    pub(crate) fn parent_ends_after(drain_time: Duration) -> Duration {
        drain_time + AFTER_DRAIN
    }

    /// Splits off the lineage arguments and the mark of connection IDs. The lineage is `None` if Envoy cannot be hot-restarted.
    pub(crate) fn split(arguments: &[String]) -> (Vec<String>, Option<Self>) {
        let mut rest = Vec::new();
        let (mut base_id, mut epoch) = (None, None);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--disable-hot-restart" | "--use-dynamic-base-id" => {}
                "--base-id" => base_id = arguments.next().and_then(|value| value.parse().ok()),
                "--restart-epoch" => epoch = arguments.next().and_then(|value| value.parse().ok()),
                "--socket-path"
                | "--socket-mode"
                | "--parent-shutdown-time-s"
                | "--base-id-path"
                | connection_ids::ARGUMENT => {
                    arguments.next();
                }
                _ => rest.push(argument.clone()),
            }
        }
        let lineage = epoch.map(|epoch| Self { base_id, epoch });
        (rest, lineage)
    }

    /// Returns `None` if the base ID is unknown.
    pub(crate) fn shared_memory(self) -> Option<PathBuf> {
        let id = u64::from(self.base_id?) * 10;
        Some(Path::new(SHARED_MEMORY).join(format!("envoy_shared_memory_{id}")))
    }

    /// Call only after this Envoy has exited.
    pub(crate) fn remove_sockets(self, directory: &Path) {
        for socket in self.sockets(directory) {
            let _ = fs::remove_file(socket);
        }
    }

    /// Call only after the lineage's last Envoy has exited, because Envoy does not remove these
    /// files.
    pub(crate) fn remove(self, directory: &Path) {
        // Envoy may have exited before the agent read its base ID.
        let line = self.resolve(directory);
        line.remove_sockets(directory);
        if let Some(path) = line.shared_memory() {
            let _ = fs::remove_file(path);
        }
    }

    fn sockets(self, directory: &Path) -> Vec<PathBuf> {
        self.sockets_of(&["child", "parent", "udp_child", "udp_parent"], directory)
    }

    /// Returns the sockets on which this Envoy receives replies from the previous Envoy.
    pub(crate) fn sockets_of_child(self, directory: &Path) -> Vec<PathBuf> {
        self.sockets_of(&["child", "udp_child"], directory)
    }

    /// Returns no paths if the base ID is unknown.
    fn sockets_of(self, roles: &[&str], directory: &Path) -> Vec<PathBuf> {
        let Some(base_id) = self.base_id else {
            return Vec::new();
        };
        // Compute the ID as Envoy does: the product is a signed 32-bit number, and the sum is an
        // unsigned 64-bit number.
        let product = i64::from(base_id.wrapping_mul(10).cast_signed());
        let id = product
            .cast_unsigned()
            .wrapping_add(u64::from(self.epoch % 3));
        let name = |role| directory.join(format!("hot_{role}_{id}"));
        roles.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(lineage: Lineage) -> Vec<String> {
        let arguments = lineage.arguments(Path::new("/run/x"), Duration::from_secs(9));
        let lossy = arguments.iter().map(|a| a.to_string_lossy().into_owned());
        lossy.collect()
    }

    #[test]
    fn arguments_give_the_place_and_the_settings_back() {
        let settings = vec!["--config-path".to_owned(), "/b.pb".to_owned()];
        let later = Lineage {
            base_id: Some(7),
            epoch: 3,
        };
        for lineage in [later, Lineage::NEW] {
            let all = [settings.clone(), arguments(lineage)].concat();
            assert_eq!(Lineage::split(&all), (settings.clone(), Some(lineage)));
        }
        let all = [settings.clone(), vec!["--disable-hot-restart".to_owned()]].concat();
        assert_eq!(Lineage::split(&all), (settings, None));
    }

    #[test]
    fn base_id_is_unknown_until_envoy_writes_it() {
        let directory = tempfile::tempdir().unwrap();
        let args = arguments(Lineage::NEW);
        assert!(!args.contains(&"--base-id".to_owned()), "{args:?}");
        assert!(args.contains(&"--use-dynamic-base-id".to_owned()));
        let line = Lineage::NEW.resolve(directory.path());
        assert_eq!((line.base_id, line.shared_memory()), (None, None));
        assert!(line.sockets(directory.path()).is_empty());

        fs::write(directory.path().join(BASE_ID_FILE), "4711").unwrap();
        let line = Lineage::NEW.resolve(directory.path());
        assert_eq!(line.base_id, Some(4711));
        assert_eq!(arguments(line.next())[..2], ["--base-id", "4711"]);
        assert!(line.next().continues(Some(Lineage::NEW), directory.path()));
        assert!(!line.continues(Some(Lineage::NEW), directory.path()));
        assert!(!line.next().continues(None, directory.path()));
        let next = Lineage::begin(directory.path()).unwrap();
        assert!(!line.next().continues(Some(Lineage::NEW), directory.path()));
        assert_eq!(next.resolve(directory.path()), Lineage::NEW);
        assert_eq!(line.resolve(directory.path()), line);
    }

    #[test]
    fn socket_names_repeat_after_three_epochs() {
        let directory = Path::new("");
        // The second base ID is the largest that Envoy chooses.
        for base_id in [4711, 0x0fff_ffff] {
            let first = Lineage {
                base_id: Some(base_id),
                epoch: 0,
            };
            assert_ne!(first.sockets(directory), first.next().sockets(directory));
            let fourth = first.next().next().next();
            assert_eq!(first.sockets(directory), fourth.sockets(directory));
            let longest = first.next().sockets(directory);
            let lengths = longest.iter().map(|path| path.as_os_str().len());
            assert!(lengths.max() < Some(LONGEST_SOCKET_NAME));
        }
        let largest = Lineage {
            base_id: Some(0x0fff_ffff),
            epoch: 0,
        };
        let names = largest.sockets_of_child(directory);
        assert_eq!(names[0], Path::new("hot_child_18446744072098938870"));
    }
}
