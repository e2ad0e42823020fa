//! The packages to install on hosts, in two versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sesame_tests::agent::agent_binary;
use sesame_tests::envoy::{envoy_binary, workspace};

pub(crate) struct Packages {
    first: PathBuf,
    second: PathBuf,
    former: PathBuf,
}

impl Packages {
    pub(crate) fn build(directory: &Path) -> Self {
        println!("host: building packages");
        let packages = Self::at(directory);
        build(&packages.first, "1");
        for name in ["sesame-agent", "sesame-envoy"] {
            let built = &debs(&packages.first, name)[0];
            pack_again(built, &packages.second.join(name), "2", |_| {});
        }
        let agent = &debs(&packages.first, "sesame-agent")[0];
        pack_again(agent, &packages.former, "0", as_formerly);
        packages
    }

    pub(crate) fn at(directory: &Path) -> Self {
        Self {
            first: directory.join("1"),
            second: directory.join("2"),
            former: directory.join("former"),
        }
    }

    /// Returns an older release's packages, which set the agent's source in an environment
    /// variable.
    pub(crate) fn former(&self) -> Vec<PathBuf> {
        let mut packages = debs(&self.former, "sesame-agent");
        packages.extend(debs(&self.first, "sesame-envoy"));
        packages
    }

    pub(crate) fn built(&self) -> &PathBuf {
        &self.first
    }

    pub(crate) fn first(&self) -> Vec<PathBuf> {
        debs(&self.first, "")
    }

    pub(crate) fn second(&self) -> Vec<PathBuf> {
        let names = ["sesame-agent", "sesame-envoy"].into_iter();
        let files = names.flat_map(|name| debs(&self.second.join(name), name));
        files.collect()
    }
}

/// Builds without compression, because the packages are used only once.
pub(crate) fn build(out: &Path, revision: &str) {
    let _ = fs::remove_dir_all(out);
    let built = Command::new(workspace().join("systemd/packages/build.sh"))
        .args([agent_binary(), envoy_binary()])
        .arg(out)
        .env("PACKAGE_REVISION", revision)
        .env("PACKAGE_LEVEL", "0")
        .stdout(Stdio::null())
        .status()
        .expect("the script runs");
    assert!(built.success(), "systemd/packages/build.sh: {built}");
}

fn pack_again(built: &Path, out: &Path, revision: &str, change_tree: impl Fn(&Path)) {
    let _ = fs::remove_dir_all(out);
    let tree = out.join("tree");
    fs::create_dir_all(out).expect("a directory");
    let dpkg = |arguments: &[&Path]| {
        let packed = Command::new("dpkg-deb")
            .args(arguments)
            .stdout(Stdio::null())
            .status()
            .expect("dpkg-deb (Debian: dpkg)");
        assert!(packed.success(), "dpkg-deb: {packed}");
    };
    dpkg(&[Path::new("--raw-extract"), built, &tree]);
    change(&tree.join("DEBIAN/control"), |text| {
        text.replace("+1\n", &format!("+{revision}\n"))
    });
    change_tree(&tree);
    dpkg(&[Path::new("-z0"), Path::new("--build"), &tree, out]);
    fs::remove_dir_all(tree).expect("the tree exists");
}

/// Removes the settings file, and sets the source in `/etc/default`.
fn as_formerly(tree: &Path) {
    fs::remove_dir_all(tree.join("usr/share/sesame-agent")).expect("the settings file");
    change(&tree.join("usr/lib/tmpfiles.d/sesame.conf"), |text| {
        let lines = text.lines().filter(|line| !line.starts_with("C "));
        lines.flat_map(|line| [line, "\n"]).collect()
    });
    change(&tree.join("etc/default/sesame-agent"), |_| {
        "SESAME_MANIFESTS=/etc/sesame/manifests\n".to_owned()
    });
}

fn change(path: &Path, change: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).expect("a file in the package");
    fs::write(path, change(&text)).expect("a file in the package");
}

pub(crate) fn debs(directory: &Path, name: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).expect("packages were built");
    let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let is_named = |file: &str| file.starts_with(name);
        file.extension().is_some_and(|end| end == "deb")
            && file
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_named)
    });
    files.sort();
    assert!(
        !files.is_empty(),
        "{}: no package {name}",
        directory.display()
    );
    files
}
