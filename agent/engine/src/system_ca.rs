//! Finds the file with the CA certificates that this host trusts.

use std::path::{Path, PathBuf};

/// If no path exists, the first one is the fallback.
const USUAL: [&str; 5] = [
    // Debian, Ubuntu, Arch, and distroless images.
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora, RHEL.
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    // SUSE.
    "/etc/ssl/ca-bundle.pem",
    // Alpine.
    "/etc/ssl/cert.pem",
];

/// Returns the first CA bundle found at a usual path, or Debian's path if there is none.
pub fn find() -> PathBuf {
    first_that(Path::is_file)
}

fn first_that(is_there: impl Fn(&Path) -> bool) -> PathBuf {
    USUAL
        .iter()
        .map(Path::new)
        .find(|path| is_there(path))
        .unwrap_or(Path::new(USUAL[0]))
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_bundle_falls_back_to_debian_path() {
        for usual in USUAL {
            assert_eq!(
                first_that(|path| path == Path::new(usual)),
                Path::new(usual)
            );
        }
        let debian = "/etc/ssl/certs/ca-certificates.crt";
        assert_eq!(first_that(|_| false), Path::new(debian));
        assert_eq!(first_that(|_| true), Path::new(debian));
    }
}
