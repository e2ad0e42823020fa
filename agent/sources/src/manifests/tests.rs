use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn object(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: \"{value}\"\n"
    )
}

struct Fixture {
    dir: tempfile::TempDir,
    manifests: Manifests,
}

impl Fixture {
    fn new() -> Self {
        Self::with_limits(ReadLimits::default())
    }

    fn with_limits(limits: ReadLimits) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        fs::create_dir(dir.path().join("root")).expect("root");
        let store = LastGood::new(dir.path().join("store"));
        let manifests = Manifests::with_limits(dir.path().join("root"), store, limits);
        Self { dir, manifests }
    }

    fn restart(&mut self) {
        let store = LastGood::new(self.dir.path().join("store"));
        self.manifests = Manifests::new(self.path(""), store);
    }

    fn path(&self, name: &str) -> PathBuf {
        let root = self.dir.path().join("root");
        if name.is_empty() {
            root
        } else {
            root.join(name)
        }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        fs::write(path, text).expect("written");
    }

    /// Returns the objects as `name=value`.
    fn objects(&mut self) -> Vec<String> {
        self.manifests.scan();
        self.shown()
    }

    fn shown(&self) -> Vec<String> {
        let maps = self.manifests.world().config_maps.iter();
        maps.map(|map| format!("{}={}", map.metadata.name, map.data["value"]))
            .collect()
    }

    fn problems(&mut self) -> Vec<String> {
        self.manifests
            .scan()
            .problems
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn problem(&mut self) -> String {
        let mut problems = self.problems();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        problems.remove(0)
    }
}

#[test]
fn manifests_of_a_tree_become_one_world() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1") + "---\n" + &object("b", "1"));
    fixture.write("sub/deeper/c.yml", object("c", "1"));
    fixture.write(
        "d.json",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"data":{"value":"1"}}"#,
    );
    fixture.write("notes.txt", "not read");
    fixture.write(".hidden.yaml", object("h", "1"));
    fixture.write(".git/e.yaml", object("e", "1"));
    assert_eq!(fixture.objects(), ["a=1", "b=1", "c=1", "d=1"]);
    assert_eq!(fixture.problems(), [""; 0]);
}

#[test]
fn scan_reports_only_changed_objects() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1") + "---\n" + &object("b", "1"));
    fixture.write("c.yaml", object("c", "1"));
    assert_eq!(fixture.manifests.scan().changed.len(), 3);
    assert_eq!(fixture.manifests.scan().changed, []);
    let changed = |report: ScanReport| -> Vec<String> {
        report.changed.iter().map(ToString::to_string).collect()
    };
    fixture.write("a.yaml", object("a", "1") + "---\n" + &object("b", "2"));
    assert_eq!(changed(fixture.manifests.scan()), ["ConfigMap/default/b"]);
    fixture.write(
        "a.yaml",
        "# a comment\n".to_owned() + &object("a", "1") + "---\n# b\n" + &object("b", "2"),
    );
    assert_eq!(changed(fixture.manifests.scan()), [""; 0]);
    fs::rename(fixture.path("c.yaml"), fixture.path("d.yaml")).expect("renamed");
    fixture.manifests.scan();
    assert_eq!(fixture.shown(), ["a=1", "b=2", "c=1"]);
    fs::remove_file(fixture.path("a.yaml")).expect("removed");
    assert_eq!(
        changed(fixture.manifests.scan()),
        ["ConfigMap/default/a", "ConfigMap/default/b"]
    );
    assert_eq!(fixture.shown(), ["c=1"]);
}

#[test]
fn rescan_reads_only_named_paths() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1"));
    fixture.write("b.yaml", object("b", "1"));
    fixture.manifests.scan();
    fixture.write("a.yaml", object("a", "2"));
    fixture.write("b.yaml", object("b", "2"));
    fixture.write("c.yaml", object("c", "1"));
    fixture
        .manifests
        .rescan_paths(&[fixture.path("a.yaml"), fixture.path("c.yaml")]);
    assert_eq!(fixture.shown(), ["a=2", "b=1", "c=1"]);
    fs::remove_file(fixture.path("c.yaml")).expect("removed");
    fixture
        .manifests
        .rescan_paths(&[fixture.path("c.yaml"), fixture.path("x.txt")]);
    assert_eq!(fixture.shown(), ["a=2", "b=1"]);
    fixture.write("new/d.yaml", object("d", "1"));
    fixture.manifests.rescan_paths(&[fixture.path("new")]);
    assert_eq!(fixture.shown(), ["a=2", "b=2", "d=1"]);
    fs::remove_dir_all(fixture.path("new")).expect("removed");
    fixture.manifests.rescan_paths(&[fixture.path("new")]);
    assert_eq!(fixture.shown(), ["a=2", "b=2"]);
}

#[test]
fn broken_document_keeps_its_own_last_good_version() {
    let mut fixture = Fixture::new();
    fixture.write(
        "a.yaml",
        object("a", "1") + "---\n" + &object("b", "1") + "---\n" + &object("c", "1"),
    );
    fixture.objects();
    let broken = object("b", "2").replace("\ndata:", "\ndata: [");
    fixture.write("a.yaml", object("a", "2") + "---\n" + &broken);
    // The broken document's name is readable, so the missing `c` was deleted on purpose.
    assert_eq!(fixture.objects(), ["a=2", "b=1"]);
    let problem = fixture.problem();
    assert!(problem.starts_with("a.yaml:1"), "{problem}");
    assert!(problem.contains("ConfigMap default/b: "), "{problem}");
    assert!(problem.contains("last valid version stays"), "{problem}");
    fixture.write("a.yaml", object("a", "2") + "---\n" + &object("b", "3"));
    assert_eq!(fixture.objects(), ["a=2", "b=3"]);
    assert_eq!(fixture.problems(), [""; 0]);
}

#[test]
fn unnamed_broken_document_keeps_all_file_objects() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1") + "---\n" + &object("b", "1"));
    fixture.write("z.yaml", object("z", "1"));
    fixture.objects();
    for broken in [
        "kind: [",
        "\u{0}\u{1}\u{2}",
        "{{{{",
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a/b}\n",
    ] {
        fixture.write("a.yaml", object("a", "2") + "---\n" + broken);
        fixture.write("z.yaml", object("z", broken.len().to_string().as_str()));
        assert_eq!(
            fixture.objects(),
            [
                "a=2".to_owned(),
                "b=1".to_owned(),
                format!("z={}", broken.len())
            ]
        );
        assert!(
            fixture
                .problem()
                .contains("1 previous objects of the file remain")
        );
    }
    fixture.write("a.yaml", [0xff, 0xfe, 0x00]);
    assert_eq!(fixture.objects().len(), 3);
    assert!(fixture.problem().contains("UTF-8"));
    fixture.write("a.yaml", "# nothing any more\n");
    assert_eq!(fixture.objects().len(), 1);
}

#[test]
fn emptied_file_keeps_objects_until_filled_or_removed() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1"));
    fixture.objects();
    fixture.write("a.yaml", "");
    assert_eq!(fixture.objects(), ["a=1"]);
    assert!(fixture.problem().contains("warning: is empty; 1 objects"));
    fixture.write("a.yaml", object("a", "2"));
    assert_eq!(fixture.objects(), ["a=2"]);
    fixture.write("a.yaml", "");
    fixture.objects();
    fs::remove_file(fixture.path("a.yaml")).expect("removed");
    assert_eq!(fixture.objects(), [""; 0]);
}

#[test]
fn the_last_good_version_survives_a_restart() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1") + "---\n" + &object("b", "1"));
    fixture.write("b.yaml", object("c", "1"));
    fixture.write("c.yaml", object("d", "1"));
    fixture.objects();
    fixture.manifests.persist_last_good().expect("stored");
    fixture.write(
        "a.yaml",
        object("a", "2") + "---\n" + &object("b", "2").replace("\ndata:", "\ndata: ["),
    );
    fixture.write("b.yaml", "");
    fixture.restart();
    assert_eq!(fixture.objects(), ["a=2", "b=1", "c=1", "d=1"]);
    // Only good versions are restored.
    fixture.manifests.persist_last_good().expect("stored");
    fixture.write("a.yaml", "nothing good");
    fixture.restart();
    assert_eq!(fixture.objects(), ["a=1", "b=1", "c=1", "d=1"]);
    // A deleted object is not restored if its file reappears with broken content.
    fs::remove_file(fixture.path("c.yaml")).expect("removed");
    fixture.objects();
    fixture.manifests.persist_last_good().expect("stored");
    fixture.write("c.yaml", "kind: [");
    fixture.restart();
    assert_eq!(fixture.objects(), ["a=1", "b=1", "c=1"]);
}

#[test]
fn duplicate_declaration_uses_first_path_and_reports_other() {
    let mut fixture = Fixture::new();
    fixture.write("b.yaml", object("x", "b"));
    fixture.write("c.yaml", object("x", "c1") + "---\n" + &object("x", "c2"));
    assert_eq!(fixture.objects(), ["x=b"]);
    let problems = fixture.problems();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert_eq!(
        problems[0],
        "c.yaml:1: error: ConfigMap default/x: is already declared in b.yaml:1, which takes precedence; remove one"
    );
    assert!(
        problems[1]
            .starts_with("c.yaml:8: error: ConfigMap default/x: is already declared in line 1"),
        "{problems:?}"
    );
    fixture.write("a.yaml", object("x", "a"));
    assert_eq!(fixture.objects(), ["x=a"]);
    fs::remove_file(fixture.path("a.yaml")).expect("removed");
    fs::remove_file(fixture.path("b.yaml")).expect("removed");
    assert_eq!(fixture.objects(), ["x=c1"]);
    assert_eq!(fixture.problems().len(), 1);
}

#[test]
fn mounted_volume_is_followed_through_symlink_swap() {
    let mut fixture = Fixture::new();
    fixture.write("..2026_1/a.yaml", object("a", "1"));
    fixture.write("..2026_1/b.yaml", object("b", "1"));
    symlink("..2026_1", fixture.path("..data")).expect("link");
    symlink("..data/a.yaml", fixture.path("a.yaml")).expect("link");
    symlink("..data/b.yaml", fixture.path("b.yaml")).expect("link");
    assert_eq!(fixture.objects(), ["a=1", "b=1"]);
    fixture.write("..2026_2/a.yaml", object("a", "2"));
    symlink("..2026_2", fixture.path("..data_tmp")).expect("link");
    fs::rename(fixture.path("..data_tmp"), fixture.path("..data")).expect("swapped");
    fs::remove_dir_all(fixture.path("..2026_1")).expect("removed");
    fixture.manifests.rescan_paths(&[fixture.path("..data")]);
    assert_eq!(
        fixture.shown(),
        ["a=2", "b=1"],
        "b.yaml is a dangling link, but still exists"
    );
    assert!(fixture.problem().contains("the link is dangling"));
    fs::remove_file(fixture.path("b.yaml")).expect("removed");
    fixture.manifests.rescan_paths(&[fixture.path("b.yaml")]);
    assert_eq!(fixture.shown(), ["a=2"]);
    assert_eq!(fixture.problems(), [""; 0]);
}

#[test]
fn non_files_are_skipped_without_blocking() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1"));
    nix::unistd::mkfifo(&fixture.path("fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let _socket =
        std::os::unix::net::UnixListener::bind(fixture.path("socket.yaml")).expect("socket");
    symlink("/dev/zero", fixture.path("zero.yaml")).expect("link");
    symlink("nowhere", fixture.path("nowhere.yaml")).expect("link");
    fs::create_dir(fixture.path("dir.yaml")).expect("directory");
    assert_eq!(fixture.objects(), ["a=1"]);
    let problems = fixture.problems();
    assert_eq!(problems.len(), 4, "{problems:#?}");
    // A fifo that replaces a file is detected before it is opened.
    fs::remove_file(fixture.path("a.yaml")).expect("removed");
    nix::unistd::mkfifo(&fixture.path("a.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    fixture.manifests.rescan_paths(&[fixture.path("a.yaml")]);
    assert_eq!(
        read::read(&fixture.path("a.yaml"), None, 10)
            .expect_err("a fifo")
            .reason,
        "is a fifo, expected a regular file"
    );
}

#[test]
fn links_stay_inside_unless_they_may_lead_out() {
    let mut fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).expect("directory");
    fs::write(outside.join("b.yaml"), object("b", "1")).expect("written");
    fixture.write("real/a.yaml", object("a", "1"));
    // Only the final target of a chain of links matters.
    symlink("../outside/b.yaml", fixture.path("b.yaml")).expect("link");
    symlink("../outside", fixture.path("sub")).expect("link");
    symlink("/etc/passwd", fixture.path("passwd.yaml")).expect("link");
    symlink(fixture.path("real"), fixture.path("zub")).expect("link");
    assert_eq!(fixture.objects(), ["a=1"]);
    let mut problems = fixture.problems();
    problems.retain(|problem| !problem.contains("is read once"));
    assert_eq!(problems.len(), 3, "{problems:#?}");
    assert!(
        problems.iter().all(|p| p.contains("--follow-links")),
        "{problems:#?}"
    );
    // If a file is replaced with a link out of the directory, its last objects remain in use.
    fs::rename(fixture.path("real/a.yaml"), outside.join("a.yaml")).expect("moved");
    symlink(outside.join("a.yaml"), fixture.path("real/a.yaml")).expect("link");
    fs::write(outside.join("a.yaml"), object("a", "2")).expect("written");
    fixture
        .manifests
        .rescan_paths(&[fixture.path("real/a.yaml")]);
    assert_eq!(fixture.shown(), ["a=1"]);
    assert_eq!(fixture.objects(), ["a=1"]);

    let limits = ReadLimits {
        links_out: true,
        ..ReadLimits::default()
    };
    let store = LastGood::new(fixture.dir.path().join("store"));
    fixture.manifests = Manifests::with_limits(fixture.path(""), store, limits);
    assert_eq!(fixture.objects(), ["a=2", "b=1"]);
}

#[test]
fn world_writable_files_are_ignored_and_reported() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1"));
    fixture.write("sub/b.yaml", object("b", "1"));
    assert_eq!(fixture.objects(), ["a=1", "b=1"]);
    let with = |path: PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
    };
    with(fixture.path("a.yaml"), 0o666);
    with(fixture.path("sub"), 0o777);
    fixture.write("a.yaml", object("a", "2"));
    fixture.write("sub/b.yaml", object("b", "2"));
    assert_eq!(fixture.objects(), ["a=1", "b=1"]);
    let problems = fixture.problems();
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(
        problems
            .iter()
            .all(|p| p.contains("all users can write to it")),
        "{problems:#?}"
    );
    with(fixture.path("a.yaml"), 0o664);
    with(fixture.path("sub"), 0o775);
    assert_eq!(fixture.objects(), ["a=2", "b=2"]);
    with(fixture.path(""), 0o777);
    fixture.write("a.yaml", object("a", "3"));
    assert!(!fixture.manifests.scan().available);
    assert_eq!(fixture.shown(), ["a=2", "b=2"]);
}

#[test]
fn loops_of_links_end() {
    let mut fixture = Fixture::new();
    fixture.write("sub/a.yaml", object("a", "1"));
    symlink("..", fixture.path("sub/up")).expect("link");
    symlink("sub", fixture.path("zub")).expect("link");
    symlink("self.yaml", fixture.path("self.yaml")).expect("link");
    assert_eq!(fixture.objects(), ["a=1"]);
    let problems = fixture.problems();
    assert_eq!(problems.len(), 3, "{problems:#?}");
    assert!(
        problems[1].contains("links to the directory . again"),
        "{problems:#?}"
    );
}

#[test]
fn limits_keep_known_objects_and_refuse_new() {
    let limits = ReadLimits {
        depth: 2,
        files: 3,
        file_bytes: 1000,
        total_bytes: 1500,
        ..ReadLimits::default()
    };
    let mut fixture = Fixture::with_limits(limits);
    fixture.write("b.yaml", object("b", "1"));
    fixture.objects();
    fixture.write("b.yaml", object("b", &"x".repeat(2000)));
    assert_eq!(fixture.objects(), ["b=1"]);
    assert!(fixture.problem().contains("more than 1000 bytes"));
    fixture.write("b.yaml", object("b", &"x".repeat(800)));
    fixture.write("c.yaml", object("c", &"x".repeat(800)));
    assert_eq!(fixture.objects().len(), 1);
    assert!(fixture.problem().contains("would exceed 1500 bytes"));
    fixture.write("b.yaml", object("b", "2"));
    fixture.write("c.yaml", object("c", "2"));
    assert_eq!(fixture.objects(), ["b=2", "c=2"]);
    for name in ["a", "aa", "d"] {
        fixture.write(&format!("{name}.yaml"), object(name, "1"));
    }
    // `c.yaml` is now the fourth file by name, but it was already in use.
    assert_eq!(fixture.objects(), ["a=1", "aa=1", "b=2", "c=2"]);
    assert!(fixture.problem().contains("limit of 3 files"));
    fs::remove_file(fixture.path("aa.yaml")).expect("removed");
    fs::remove_file(fixture.path("d.yaml")).expect("removed");
    fixture.write("1/2/3/e.yaml", object("e", "1"));
    fixture.write("1/2/3/4/f.yaml", object("f", "1"));
    assert_eq!(fixture.objects(), ["a=1", "b=2", "c=2"]);
    assert!(
        fixture
            .problem()
            .contains("1/2/3: error: is more than 2 directories deep")
    );
}

#[test]
fn vanished_directory_removes_nothing() {
    let mut fixture = Fixture::new();
    fixture.write("a.yaml", object("a", "1"));
    fixture.objects();
    let away = fixture.dir.path().join("away");
    fs::rename(fixture.path(""), &away).expect("moved");
    // The whole directory is gone, even if the event names only one file.
    let report = fixture.manifests.rescan_paths(&[fixture.path("a.yaml")]);
    assert!(!report.available && report.changed.is_empty());
    let report = fixture.manifests.scan();
    assert!(!report.available && report.changed.is_empty());
    assert_eq!(fixture.shown(), ["a=1"]);
    assert!(
        fixture
            .problem()
            .contains("its previous objects remain in use")
    );
    fs::create_dir(fixture.path("")).expect("created");
    fixture.write("a.yaml", object("a", "2"));
    assert_eq!(fixture.objects(), ["a=2"]);
}

#[test]
fn problems_are_values_for_people_and_for_programs() {
    let mut fixture = Fixture::new();
    fixture.write(
        "a.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r}\nspec: {rulez: []}\n",
    );
    let report = fixture.manifests.scan();
    let shown: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "a.yaml:1: warning: kind \"Deployment\" of \"apps/v1\" is ignored",
            "a.yaml:8: warning: HTTPRoute default/r: unknown field `spec.rulez` (did you mean `rules`?): it has no effect",
        ]
    );
    assert_eq!(
        serde_json::to_value(&report.problems[1]).expect("JSON"),
        serde_json::json!({
            "file": "a.yaml",
            "line": 8,
            "object": "HTTPRoute/default/r",
            "severity": "warning",
            "message": "unknown field `spec.rulez` (did you mean `rules`?): it has no effect",
        })
    );
}

#[test]
fn wrong_values_and_typos_are_located() {
    let mut fixture = Fixture::new();
    fixture.write(
        "route.yaml",
        "# a comment\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: demo}\nspec:\n\
         \x20 rules:\n  - backendRefs:\n    - name: a\n      weight: nine\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: other}\nspec:\n\
         \x20 rules:\n  - backendRef:\n    - name: a\n    filtres: []\n",
    );
    let report = fixture.manifests.scan();
    let shown: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "route.yaml:10: error: HTTPRoute default/demo: spec.rules[0].backendRefs[0].weight: \"nine\" is not an \
             integer from 0 to 1000000; it is not served",
            "route.yaml:17: warning: HTTPRoute default/other: unknown field `spec.rules[0].backendRef` (did you mean \
             `backendRefs`?): it has no effect",
            "route.yaml:19: error: HTTPRoute default/other: unknown field `spec.rules[0].filtres` (did you mean \
             `filters`?): it may be security-relevant, so the part that contains it is not served",
        ]
    );
}
