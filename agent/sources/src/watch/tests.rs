use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::last_good::LastGood;
use crate::manifests::Manifests;
use sesame_kinds::world::Kind;

const DEADLINE: Duration = Duration::from_secs(60);

fn object(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
}

struct Fixture {
    dir: tempfile::TempDir,
    watch: Watch,
    manifests: Manifests,
    root: PathBuf,
}

impl Fixture {
    fn new(timing: Timing) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().join("root");
        Self::at(dir, root, timing)
    }

    fn at(dir: tempfile::TempDir, root: PathBuf, timing: Timing) -> Self {
        let limits = ReadLimits {
            links_out: true,
            ..ReadLimits::default()
        };
        Self {
            watch: Watch::start(&root, limits, timing, tree::is_manifest).expect("started"),
            manifests: Manifests::with_limits(root.clone(), LastGood::none(), limits),
            root,
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    async fn until(&mut self, expected: &[&str]) {
        let wait = async {
            loop {
                let maps = self.manifests.world().names(Kind::ConfigMap);
                if maps
                    .iter()
                    .map(|key| key.name.as_str())
                    .eq(expected.iter().copied())
                {
                    return;
                }
                match self.watch.changes.recv().await.expect("running watch") {
                    Change::All => self.manifests.scan(),
                    Change::Paths(paths) => self.manifests.rescan_paths(&paths),
                };
            }
        };
        let outcome = tokio::time::timeout(DEADLINE, wait).await;
        let world = self.manifests.world().names(Kind::ConfigMap);
        assert!(outcome.is_ok(), "expected {expected:?}, got {world:?}");
    }
}

const EVENTS: Timing = Timing {
    one: Duration::from_millis(1),
    quiet: Duration::from_millis(2),
    longest: Duration::from_millis(20),
    poll: Duration::from_secs(3600),
    rescan: Duration::from_secs(3600),
};

#[tokio::test]
async fn every_way_to_change_a_file_is_reported() {
    let mut fixture = Fixture::new(EVENTS);
    fs::create_dir(fixture.path("")).expect("root");
    fs::write(fixture.path("a.yaml"), object("a")).expect("created");
    fixture.until(&["a"]).await;
    fs::write(fixture.path("a.yaml"), object("b")).expect("modified");
    fixture.until(&["b"]).await;
    fs::write(fixture.path(".tmp"), object("c")).expect("created");
    fs::rename(fixture.path(".tmp"), fixture.path("a.yaml")).expect("replaced");
    fixture.until(&["c"]).await;
    fs::rename(fixture.path("a.yaml"), fixture.path("a.off")).expect("moved away");
    fixture.until(&[]).await;
    fs::rename(fixture.path("a.off"), fixture.path("b.yaml")).expect("moved in");
    fixture.until(&["c"]).await;
    fs::remove_file(fixture.path("b.yaml")).expect("removed");
    fixture.until(&[]).await;
    assert_eq!(fixture.watch.polling(), None);
}

#[tokio::test]
async fn directories_come_and_go() {
    let mut fixture = Fixture::new(EVENTS);
    fs::create_dir_all(fixture.path("x/y")).expect("created");
    fs::write(fixture.path("x/y/a.yaml"), object("a")).expect("created");
    fixture.until(&["a"]).await;
    fs::write(fixture.path("x/y/b.yaml"), object("b")).expect("created");
    fixture.until(&["a", "b"]).await;
    fs::rename(fixture.path("x"), fixture.path("z")).expect("renamed");
    fs::write(fixture.path("z/y/c.yaml"), object("c")).expect("created");
    fixture.until(&["a", "b", "c"]).await;
    fs::write(fixture.path("z/y/c.yaml"), object("d")).expect("modified");
    fixture.until(&["a", "b", "d"]).await;
    let outside = fixture.dir.path().join("outside");
    fs::create_dir(&outside).expect("created");
    symlink(&outside, fixture.path("link")).expect("linked");
    fs::write(outside.join("e.yaml"), object("e")).expect("created");
    fixture.until(&["a", "b", "d", "e"]).await;
    fs::write(outside.join("e.yaml"), object("f")).expect("modified");
    fixture.until(&["a", "b", "d", "f"]).await;
    fs::remove_dir_all(fixture.path("z")).expect("removed");
    fixture.until(&["f"]).await;
}

#[tokio::test]
async fn mounted_volume_swap_is_reported() {
    let mut fixture = Fixture::new(EVENTS);
    fs::create_dir_all(fixture.path("..1")).expect("created");
    fs::write(fixture.path("..1/a.yaml"), object("a")).expect("created");
    symlink("..1", fixture.path("..data")).expect("linked");
    symlink("..data/a.yaml", fixture.path("a.yaml")).expect("linked");
    fixture.until(&["a"]).await;
    for name in ["b", "c"] {
        let dir = fixture.path(&format!("..{name}"));
        fs::create_dir(&dir).expect("created");
        fs::write(dir.join("a.yaml"), object(name)).expect("created");
        symlink(format!("..{name}"), fixture.path("..data_tmp")).expect("linked");
        fs::rename(fixture.path("..data_tmp"), fixture.path("..data")).expect("swapped");
        fixture.until(&[name]).await;
    }
}

#[tokio::test]
async fn a_root_that_is_replaced_is_followed() {
    let mut fixture = Fixture::new(EVENTS);
    fs::create_dir(fixture.path("")).expect("root");
    fs::write(fixture.path("a.yaml"), object("a")).expect("created");
    fixture.until(&["a"]).await;
    let next = fixture.dir.path().join("next");
    fs::create_dir(&next).expect("created");
    fs::write(next.join("b.yaml"), object("b")).expect("created");
    fs::rename(fixture.path(""), fixture.dir.path().join("old")).expect("moved away");
    fs::rename(&next, fixture.path("")).expect("moved in");
    fixture.until(&["b"]).await;
    fs::write(fixture.path("c.yaml"), object("c")).expect("created");
    fixture.until(&["b", "c"]).await;
    fs::remove_dir_all(fixture.path("")).expect("removed");
    fs::create_dir(fixture.path("")).expect("created again");
    fs::write(fixture.path("d.yaml"), object("d")).expect("created");
    fixture.until(&["d"]).await;
}

#[tokio::test]
async fn moved_link_above_the_root_is_followed() {
    let dir = tempfile::tempdir().expect("directory");
    let top = dir.path();
    let release = |name: &str, content: &str| {
        let manifests = top.join("releases").join(name).join("manifests");
        fs::create_dir_all(&manifests).expect("created");
        fs::write(manifests.join("a.yaml"), object(content)).expect("created");
    };
    let switch = |name: &str, target: &str| {
        symlink(target, top.join("next")).expect("linked");
        fs::rename(top.join("next"), top.join(name)).expect("switched");
    };
    release("1", "a");
    release("2", "b");
    switch("live", "releases/1");
    switch("current", "live");
    let root = top.join("current/manifests");
    let mut fixture = Fixture::at(dir, root, EVENTS);
    let top = fixture.dir.path().to_owned();
    fixture.until(&["a"]).await;
    // Redirect the last link, then the first one.
    for (name, target) in [("live", "releases/2"), ("current", "releases/1")] {
        symlink(target, top.join("next")).expect("linked");
        fs::rename(top.join("next"), top.join(name)).expect("switched");
        fixture
            .until(&[if target.ends_with('2') { "b" } else { "a" }])
            .await;
    }
    fs::rename(top.join("releases/1/manifests"), top.join("old")).expect("moved away");
    fs::rename(
        top.join("releases/2/manifests"),
        top.join("releases/1/manifests"),
    )
    .expect("moved");
    fixture.until(&["b"]).await;
    fs::write(fixture.path("c.yaml"), object("c")).expect("created");
    fixture.until(&["b", "c"]).await;
}

#[tokio::test]
async fn root_with_missing_parent_is_found_by_polling() {
    let dir = tempfile::tempdir().expect("directory");
    let root = dir.path().join("not/yet/there");
    let timing = Timing {
        poll: Duration::from_millis(5),
        ..EVENTS
    };
    let mut watch =
        Watch::start(&root, ReadLimits::default(), timing, tree::is_manifest).expect("started");
    assert_eq!(watch.changes.recv().await, Some(Change::All));
    fs::create_dir_all(&root).expect("created");
    let change = tokio::time::timeout(DEADLINE, watch.changes.recv()).await;
    assert_eq!(change.expect("in time"), Some(Change::All));
}

#[tokio::test]
async fn lagging_reader_loses_no_changes() {
    let mut fixture = Fixture::new(Timing {
        quiet: Duration::ZERO,
        longest: Duration::ZERO,
        ..EVENTS
    });
    fs::create_dir(fixture.path("")).expect("root");
    let names: Vec<_> = (100..300).map(|number| format!("n{number}")).collect();
    for name in &names {
        fs::write(fixture.path(&format!("{name}.yaml")), object(name)).expect("created");
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    fixture.until(&names).await;
}
