use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn accepted<'a>(revision: &'a str, snapshot: &'a [u8]) -> Accepted<'a> {
    Accepted {
        revision,
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
fn the_last_accepted_is_found_by_the_next_agent_and_old_ones_go() {
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

/// Every file below a directory, relative to it.
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
fn wherever_the_writing_is_cut_the_last_accepted_or_the_one_before_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let before = directory.path().join("before");
    let after = directory.path().join("after");
    let state = StateDir::open(&before, 2).unwrap();
    state.accept(accepted("old", b"old")).unwrap();
    copy(&before, &after);
    let state = StateDir::open(&after, 2).unwrap();
    state.accept(accepted("new", b"new")).unwrap();

    // The order of the writes: three files aside, the name, the pointer aside, the pointer.
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
            assert!(!staged.exists(), "what was cut is removed");
            // And the next write works.
            state.accept(accepted("next", b"next")).unwrap();
            assert_eq!(revision(&state).as_deref(), Some("next"));
        }
    }
    // Named, but not pointed to; the pointer aside, whole and cut.
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
fn any_single_damage_of_a_complete_state_is_told_and_survived() {
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
