//! Sesame's images, and two images that only tests use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::node::ok;
use crate::node_files::PAUSE;
use crate::tools::{self, tool};

pub(crate) const ECHO: &str = "localhost/echo:test";
const OWN: &[(&str, &str)] = &[("pause", PAUSE), ("echo-basic", ECHO)];

pub(crate) fn build() {
    let directory = tools::directory().join("images");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    for (program, name) in OWN {
        from_scratch(&directory, program, name);
    }
}

pub(crate) fn archives() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in [tools::directory().join("images"), sesame()] {
        let entries = fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        let paths = entries.flatten().map(|entry| entry.path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "tar")));
    }
    found.sort();
    found
}

pub(crate) fn sesame() -> PathBuf {
    sesame_tests::envoy::workspace().join("target/images")
}

fn from_scratch(directory: &Path, program: &str, name: &str) {
    let context = directory.join(program);
    fs::create_dir_all(&context).expect("a directory");
    fs::copy(tool(program), context.join("program")).expect("a program");
    let file = "FROM scratch\nCOPY program /program\nUSER 65532:65532\nENTRYPOINT [\"/program\"]\n";
    fs::write(context.join("Containerfile"), file).expect("a file");
    let archive = directory.join(format!("{program}.tar"));
    ok(Command::new("buildah")
        .args(["build", "--isolation=chroot", "--layers=false", "--tag"])
        .arg(format!("oci-archive:{}:{name}", archive.display()))
        .arg(&context));
    fs::remove_dir_all(&context).expect("the context can be removed");
}
