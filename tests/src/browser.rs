//! A headless browser that shows a page, and takes its picture for the documentation.

use std::process::Command;

use crate::agent::words;
use crate::envoy::workspace;

/// Browser that shows pages, unless a variable names another.
const BROWSER: &str = "chromium-headless-shell";

/// Returns the document that the browser has made of a page, after its scripts have run, if it has any.
pub async fn document(url: &str) -> String {
    browser(vec!["--dump-dom".to_owned(), url.to_owned()]).await
}

/// Takes the picture of a page, of so many pixels; with `$SESAME_SET_PICTURES` it becomes the one of `docs/pictures`.
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
    if std::env::var_os("SESAME_SET_PICTURES").is_some() {
        let to = workspace().join("docs/pictures").join(name);
        std::fs::write(to, &bytes).expect("the picture of the documentation");
    }
}

async fn browser(arguments: Vec<String>) -> String {
    let run = move || {
        let program = std::env::var("SESAME_BROWSER").unwrap_or_else(|_| BROWSER.to_owned());
        let output = Command::new(&program)
            // As root, and in a container, it has no sandbox of its own; it opens this page alone.
            .args(["--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(arguments)
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}; SESAME_BROWSER names another"));
        assert!(output.status.success(), "{}", words(&output));
        words(&output)
    };
    tokio::task::spawn_blocking(run)
        .await
        .expect("the browser ends")
}
