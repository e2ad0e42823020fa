//! A headless browser that renders a page and takes screenshots for the documentation.

use std::process::Command;

use crate::agent::words;
use crate::envoy::workspace;
use crate::generated;

const BROWSER: &str = "chromium-headless-shell";

/// Loads a page, runs its scripts, and returns the DOM.
pub async fn document(url: &str) -> String {
    browser(vec!["--dump-dom".to_owned(), url.to_owned()]).await
}

/// Takes a screenshot of a page, with the given size in pixels. Replaces the file `name` in
/// `docs/pictures` if tests write generated files.
pub async fn take_picture(url: &str, name: &str, (width, height): (u32, u32)) {
    let directory = tempfile::tempdir().expect("a directory");
    let picture = directory.path().join(name);
    browser(vec![
        format!("--screenshot={}", picture.display()),
        format!("--window-size={width},{height}"),
        url.to_owned(),
    ])
    .await;
    let bytes = std::fs::read(&picture).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG"), "{} bytes", bytes.len());
    if generated::is_requested() {
        let to = workspace().join("docs/pictures").join(name);
        std::fs::write(to, &bytes).expect("write the picture");
    }
}

async fn browser(arguments: Vec<String>) -> String {
    let run = move || {
        let program = std::env::var("SESAME_BROWSER").unwrap_or_else(|_| BROWSER.to_owned());
        let output = Command::new(&program)
            // The browser's sandbox does not work for root in a container.
            .args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(arguments)
            .output()
            .unwrap_or_else(|error| {
                panic!("{program}: {error}; set SESAME_BROWSER to use another")
            });
        assert!(output.status.success(), "{}", words(&output));
        words(&output)
    };
    tokio::task::spawn_blocking(run).await.expect("no panic")
}
