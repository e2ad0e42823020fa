//! Tracks how one launcher replaces another on the same host.
//!
//! An Envoy belongs to the launcher whose Envoy binary it runs. Binaries in different containers
//! count as different, even if the image is the same. The old launcher exits once its last Envoy
//! has exited.

use std::io;
use std::path::Path;

use super::identity::{Executable, Identity, PID_FILE};
use super::launcher::{self, LAUNCHER_SOCKET};
use sesame_host::{entries, processes};

/// Returns why another launcher may still use the runtime directory. Returns `None` if the launcher
/// of `binary` owns the socket and all serving Envoy processes.
pub fn pending(runtime: &Path, binary: &Path) -> io::Result<Option<String>> {
    let own = Executable::at(binary)?;
    match launcher::executable(&runtime.join(LAUNCHER_SOCKET)) {
        Some(next) if next.is_same(&own) => {}
        Some(_) => return Ok(Some("another launcher owns the socket".to_owned())),
        None => return Ok(Some("no launcher responds".to_owned())),
    }
    let others = entries(&runtime.join("gateways"))?
        .into_iter()
        .filter_map(|directory| Identity::read(&directory.join(PID_FILE)))
        .find(|identity| is_of_another(identity, &own));
    Ok(others.map(|identity| {
        format!(
            "Envoy process {} belongs to another launcher; the agent is replacing that Envoy",
            identity.pid
        )
    }))
}

fn is_of_another(identity: &Identity, own: &Executable) -> bool {
    let is_own = identity
        .executable
        .as_ref()
        .is_some_and(|executable| executable.is_same(own));
    !is_own
        && !identity.stopping
        && processes::start_time(identity.pid) == Some(identity.start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_of_other_executable_belongs_to_another_launcher() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, name).unwrap();
            Executable::at(&path).unwrap()
        };
        let (own, other) = (at("own"), at("other"));
        let pid = std::process::id();
        let serving = Identity {
            pid,
            start_time: processes::start_time(pid).unwrap(),
            executable: Some(other),
            bootstrap_digest: String::new(),
            arguments: Vec::new(),
            lineage: None,
            stopping: false,
            id_mark: None,
        };
        assert!(is_of_another(&serving, &own));
        let mine = Identity {
            executable: Some(own.clone()),
            ..serving.clone()
        };
        assert!(!is_of_another(&mine, &own));
        let stopping = Identity {
            stopping: true,
            ..serving.clone()
        };
        assert!(!is_of_another(&stopping, &own));
        let gone = Identity {
            start_time: 1,
            ..serving
        };
        assert!(!is_of_another(&gone, &own));
    }
}
