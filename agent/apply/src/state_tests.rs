use std::os::unix::fs::PermissionsExt as _;

use super::*;
use sesame_host::durable::{DiskStep, STEPS};

fn accepted<'a>(revision: &'a str, snapshot: &'a [u8]) -> Accepted<'a> {
    Accepted {
        revision,
        config: revision,
        cause: "test",
        time: Timestamp::UNIX_EPOCH,
        snapshot,
        keys: b"secret",
        addresses: &[],
    }
}

fn revision(state: &StateDir) -> Option<String> {
    let loaded = state.load_accepted().unwrap();
    loaded.generation.map(|g| g.meta.revision)
}

#[test]
fn next_agent_loads_last_accepted_and_prunes_older() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::open(directory.path(), 2).unwrap();
    assert_eq!(state.load_accepted().unwrap(), Loaded::default());
    for name in ["a", "b", "c"] {
        state.accept(accepted(name, name.as_bytes())).unwrap();
    }
    let state = StateDir::open(directory.path(), 2).unwrap();
    let loaded = state.load_accepted().unwrap();
    assert_eq!(loaded.damage, Vec::<String>::new());
    let generation = loaded.generation.unwrap();
    assert_eq!(
        (generation.meta.number, &generation.snapshot[..]),
        (3, &b"c"[..])
    );
    assert_eq!(&generation.keys[..], b"secret");
    let kept: Vec<String> = state
        .list()
        .unwrap()
        .into_iter()
        .map(|m| m.revision)
        .collect();
    assert_eq!(kept, ["b", "c"]);
}

#[test]
fn endpoint_only_changes_do_not_crowd_out_history() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDir::open(directory.path(), 5).unwrap();
    let of = |config| Accepted {
        config,
        ..accepted("r", b"snapshot")
    };
    let kept = || {
        let kept = state.list().unwrap().into_iter();
        kept.map(|m| m.config).collect::<Vec<_>>()
    };
    for config in ["a", "b", "b", "b", "c", "c", "c", "c"] {
        state.accept(of(config)).unwrap();
    }
    // The newest two generations are always kept.
    assert_eq!(kept(), ["a", "b", "c", "c"]);
    // Generations without a configuration digest never count as equal.
    for config in ["", "", "", "d"] {
        state.accept(of(config)).unwrap();
    }
    assert_eq!(kept(), ["c", "", "", "", "d"]);
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(entries(&path).unwrap());
        } else {
            found.push(path.strip_prefix(root).unwrap().to_owned());
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(from.join(file), target).unwrap();
    }
}

#[test]
fn interrupted_write_keeps_new_or_previous_generation() {
    let directory = tempfile::tempdir().unwrap();
    let before = directory.path().join("before");
    let after = directory.path().join("after");
    let state = StateDir::open(&before, 2).unwrap();
    state.accept(accepted("old", b"old")).unwrap();
    copy(&before, &after);
    let state = StateDir::open(&after, 2).unwrap();
    state.accept(accepted("new", b"new")).unwrap();

    let copied = |cut: usize| {
        let root = directory.path().join(format!("cut{cut}"));
        copy(&before, &root);
        root
    };
    let generation = |root: &Path, name: &str| root.join("generations").join(name);
    let parts = [SNAPSHOT, KEYS, META];
    for (cut, written) in (0..=3).enumerate() {
        for truncated in [false, true] {
            let root = copied(cut * 2 + usize::from(truncated));
            let staged = generation(&root, "2.new");
            fs::create_dir_all(&staged).unwrap();
            for (position, part) in parts[..written].iter().enumerate() {
                let mut bytes = fs::read(generation(&after, "2").join(part)).unwrap();
                if truncated && position + 1 == written {
                    bytes.truncate(bytes.len() / 2);
                }
                fs::write(staged.join(part), bytes).unwrap();
            }
            let state = StateDir::open(&root, 2).unwrap();
            assert_eq!(revision(&state).as_deref(), Some("old"));
            assert!(!staged.exists(), "the incomplete generation is removed");
            state.accept(accepted("next", b"next")).unwrap();
            assert_eq!(revision(&state).as_deref(), Some("next"));
        }
    }
    for (cut, pointer) in [(20, None), (21, Some("")), (22, Some("2\n"))] {
        let root = copied(cut);
        copy(&generation(&after, "2"), &generation(&root, "2"));
        if let Some(pointer) = pointer {
            fs::write(root.join("accepted.new"), pointer).unwrap();
        }
        assert_eq!(
            revision(&StateDir::open(&root, 2).unwrap()).as_deref(),
            Some("old")
        );
    }
}

#[test]
fn single_damage_is_reported_and_survived() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    let state = StateDir::open(&good, 2).unwrap();
    state.accept(accepted("old", b"old snapshot")).unwrap();
    state.accept(accepted("new", b"new snapshot")).unwrap();
    for (case, file) in files(&good).into_iter().enumerate() {
        for damage in ["removed", "truncated", "altered", "empty"] {
            let root = directory.path().join(format!("{case}{damage}"));
            copy(&good, &root);
            let path = root.join(&file);
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                "removed" => fs::remove_file(&path).unwrap(),
                "truncated" => fs::write(&path, &bytes[..bytes.len() - 1]).unwrap(),
                "empty" => fs::write(&path, []).unwrap(),
                _ => {
                    bytes[0] ^= 1;
                    fs::write(&path, bytes).unwrap();
                }
            }
            let loaded = StateDir::open(&root, 2).unwrap().load_accepted().unwrap();
            let found = loaded.generation.unwrap().meta.revision;
            let is_of_old = file.starts_with("generations/1");
            let is_pointer = file == Path::new(ACCEPTED);
            let expected = if is_of_old || is_pointer {
                "new"
            } else {
                "old"
            };
            assert_eq!(found, expected, "{} {damage}", file.display());
            assert_eq!(
                loaded.damage.is_empty(),
                is_of_old,
                "{} {damage}: {:?}",
                file.display(),
                loaded.damage
            );
        }
    }
}

#[test]
fn keys_are_for_this_user_only() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("state");
    let state = StateDir::open(&root, 2).unwrap();
    state.accept(accepted("a", b"a")).unwrap();
    for path in files(&root)
        .iter()
        .map(|f| root.join(f))
        .chain([root.clone()])
    {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
}

/// Keeps all synced changes, and a random subset of the others.
fn cut_off(steps: &[DiskStep], root: &Path, disk: &Path, chance: &mut impl FnMut() -> bool) {
    let there = |path: &Path| disk.join(path.strip_prefix(root).unwrap());
    let synced_after = |index: usize, step: DiskStep| steps[index..].contains(&step);
    let mut kept = |index: usize, path: &Path| {
        let parent = path.parent().unwrap().to_owned();
        synced_after(index, DiskStep::SyncDirectory(parent)) || chance()
    };
    let mut halves = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        // A step that depends on a lost step fails, so it is lost, too.
        match step {
            DiskStep::MakeDirectory(path) if kept(index, path) => {
                let _ = fs::create_dir(there(path));
            }
            DiskStep::Write(path, bytes) => {
                let whole = synced_after(index, DiskStep::SyncFile(path.clone()));
                // A power cut can lose only the new content of an existing file, not the file.
                if there(path).exists() || kept(index, path) {
                    let _ = fs::write(there(path), bytes);
                    halves.extend((!whole).then(|| there(path)));
                }
            }
            DiskStep::Rename(from, to) if kept(index, to) => {
                let _ = fs::rename(there(from), there(to));
            }
            DiskStep::Remove(path) if kept(index, path) => {
                let _ = fs::remove_dir_all(there(path));
            }
            _ => {}
        }
    }
    for path in halves {
        if chance()
            && let Ok(file) = fs::File::options().write(true).open(&path)
        {
            let length = file.metadata().unwrap().len();
            file.set_len(length / 2).unwrap();
        }
    }
}

#[test]
fn power_cut_keeps_new_or_previous_generation() {
    let seed = std::env::var("SESAME_SEED").ok();
    let seed: u64 = seed.and_then(|text| text.parse().ok()).unwrap_or(1);
    let cuts: u32 = if std::env::var_os("SESAME_SOAK").is_some() {
        2000
    } else {
        100
    };
    eprintln!("SESAME_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("written");
    fs::create_dir(&root).unwrap();
    let own = root.join("gateways/0123");
    STEPS.set(Some(Vec::new()));
    let mut accepted_at = Vec::new();
    let state = StateDir::open(&own, 3).unwrap();
    for revision in ["a", "b", "c", "d", "e", "f"] {
        state
            .accept(accepted(revision, revision.as_bytes()))
            .unwrap();
        accepted_at.push((
            STEPS.with_borrow(|steps| steps.as_ref().map_or(0, Vec::len)),
            revision,
        ));
    }
    let steps = STEPS.take().unwrap();
    let mut state = seed;
    let mut random = move |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for cut in 0..cuts {
        let at = usize::try_from(random(steps.len() as u64 + 1)).unwrap();
        let disk = directory.path().join(format!("cut{cut}"));
        fs::create_dir(&disk).unwrap();
        cut_off(&steps[..at], &root, &disk, &mut || random(2) == 0);
        let found = StateDir::open(disk.join("gateways/0123"), 3).unwrap();
        let got = revision(&found);
        let done = accepted_at.iter().filter(|(end, _)| *end <= at).count();
        let last = done.checked_sub(1);
        let allowed: Vec<Option<&str>> = [last.and_then(|l| l.checked_sub(1)), last, Some(done)]
            .into_iter()
            .map(|index| {
                index
                    .and_then(|index| accepted_at.get(index))
                    .map(|(_, r)| *r)
            })
            .collect();
        let expected = match got.as_deref() {
            None => done == 0,
            found => allowed.contains(&found),
        };
        assert!(
            expected,
            "power cut {cut} after step {at}, {done} accepted: {got:?}"
        );
        found.accept(accepted("next", b"next")).unwrap();
        assert_eq!(revision(&found).as_deref(), Some("next"));
    }
}
