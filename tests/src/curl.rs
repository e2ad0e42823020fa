//! curl's library with HTTP/3, as a package ships it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use sesame_kit::envoy::workspace;

/// Statuses and curl's numbers of the protocols: a request over HTTP/2, a request over HTTP/3, and
/// two requests of a client that follows `alt-svc`.
const EXPECTED: &str = "200 3\n200 30\n200 3\n200 30\n";

/// Returns the library that `make curl-http3` fetches.
fn library() -> PathBuf {
    let pins = std::fs::read_to_string(workspace().join("tests/tools/pins")).expect("pins");
    let pinned = |line: &str| line.strip_prefix("CURL_HTTP3_VERSION=").map(str::to_owned);
    let version = pins.lines().find_map(pinned).expect("a version");
    let library = workspace().join(format!(".tools/curl-http3-{version}/libcurl.so"));
    assert!(
        library.is_file(),
        "no {}: run `make curl-http3`",
        library.display()
    );
    library
}

/// Fetches `/`, trusting only this authority. The error contains what curl did instead.
pub fn fetches_over_http3(host: &str, address: SocketAddr, authority: &str) -> Result<(), String> {
    let trusted = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(trusted.path(), authority).expect("a file");
    let output = Command::new("python3")
        .arg(workspace().join("tests/src/curl.py"))
        .arg(library())
        .arg(trusted.path())
        .args([host, &address.ip().to_string(), &address.port().to_string()])
        .output()
        .expect("Python");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if printed == EXPECTED {
        return Ok(());
    }
    Err(format!("{printed}{errors}"))
}
