use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::*;

fn write_pair(directory: &Path, name: &str) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    fs::write(directory.join("tls.crt"), made.cert.pem()).unwrap();
    let key = directory.join("tls.key");
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
}

fn entry(directory: &Path) -> LocalFile {
    let at = directory.display();
    let text = format!("secret=default/edge,certFile={at}/tls.crt,keyFile={at}/tls.key");
    LocalFile::certificate(&text).unwrap()
}

fn read(entry: &LocalFile, before: &LocalMaterial) -> LocalMaterial {
    read::read_all(
        std::slice::from_ref(entry),
        before,
        &RequestContext::default(),
    )
}

type Harm<'a> = &'a dyn Fn();

#[test]
fn unusable_files_replace_nothing_and_explain_why() {
    let dir = tempfile::tempdir().unwrap();
    write_pair(dir.path(), "a.test");
    let entry = entry(dir.path());
    let good = read(&entry, &LocalMaterial::default());
    assert_eq!(good.problems, []);
    assert_eq!(good.usable.pairs.len(), 1);
    let (key, certificate) = (dir.path().join("tls.key"), dir.path().join("tls.crt"));
    let whole = fs::read(&certificate).unwrap();
    let other = rcgen::generate_simple_self_signed(["b.test".to_owned()]).unwrap();
    let harms: [(Harm<'_>, &str); 5] = [
        (
            &|| fs::write(&certificate, other.cert.pem()).unwrap(),
            "does not match",
        ),
        (
            &|| fs::write(&certificate, &whole[..40]).unwrap(),
            "tls.crt",
        ),
        (&|| fs::remove_file(&certificate).unwrap(), "No such file"),
        (
            &|| fs::set_permissions(&key, fs::Permissions::from_mode(0o604)).unwrap(),
            "every user of this host can access it (mode 0604)",
        ),
        (&|| fs::write(&key, "").unwrap(), "tls.key"),
    ];
    for (harm, words) in harms {
        harm();
        let bad = read(&entry, &good);
        assert_eq!(bad.usable, good.usable, "{words}");
        let message = &bad.problems[0].message;
        assert!(message.contains(words), "{message}");
        assert!(message.contains("stays in use"), "{message}");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&certificate, &whole).unwrap();
    }
    let nothing = read(&entry, &LocalMaterial::default());
    let message = &nothing.problems[0].message;
    assert!(
        message.contains("the object is missing until this is fixed"),
        "{message}"
    );
}

#[test]
fn a_moved_link_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    for (name, host) in [("..1", "a.test"), ("..2", "b.test")] {
        fs::create_dir(dir.path().join(name)).unwrap();
        write_pair(&dir.path().join(name), host);
    }
    symlink("..1", dir.path().join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), dir.path().join(name)).unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut files = LocalFiles::start(&[entry(dir.path())], &[], Arc::default()).unwrap();
    let first = files.newest();
    assert_eq!(first.problems, []);
    symlink("..2", dir.path().join("..data_tmp")).unwrap();
    fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
    runtime.block_on(files.changed());
    let second = files.newest();
    assert_eq!(second.problems, []);
    assert_ne!(first.usable, second.usable);
}
