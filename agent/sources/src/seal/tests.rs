use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn pair() -> KeyPair {
    KeyPair {
        name: "Secret/default/cert".to_owned(),
        certificate_chain: b"public".to_vec(),
        private_key: b"very private".to_vec(),
        ..KeyPair::default()
    }
}

async fn prepared(method: SealMethod, directory: &Path) -> SealingKeys {
    let directory = directory.to_owned();
    SealingKeys::prepare(&SealSettings { method, directory }).await
}

#[tokio::test]
async fn key_file_is_created_once_and_reused() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("seal");
    let first = prepared(SealMethod::KeyFile, &directory).await;
    assert_eq!(first.problems(), [""; 0]);
    let stored = first.seal_pair(&pair()).unwrap();
    let modes = [directory.clone(), directory.join("host.key")]
        .map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
    assert_eq!(modes, [0o700, 0o600]);
    for method in [SealMethod::KeyFile, SealMethod::Auto, SealMethod::Off] {
        let later = prepared(method, &directory).await;
        assert_eq!(later.open_pair(&stored), Ok(pair()), "{method:?}");
        assert_eq!(later.is_current(&stored), method != SealMethod::Off);
    }
    let off = prepared(SealMethod::Off, &directory).await;
    let clear = off.seal_pair(&pair()).unwrap();
    assert!(off.is_current(&clear) && !first.is_current(&clear));
    assert_eq!(first.open_pair(&clear), Ok(pair()));
}

#[tokio::test]
async fn damaged_key_file_is_reported_and_never_replaced() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("seal");
    let first = prepared(SealMethod::KeyFile, &directory).await;
    let stored = first.seal_pair(&pair()).unwrap();
    let file = directory.join("host.key");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..20]).unwrap();
    let damaged = prepared(SealMethod::KeyFile, &directory).await;
    assert!(damaged.problems()[0].contains("host.key"), "{damaged:?}");
    assert!(matches!(
        damaged.seal_pair(&pair()),
        Err(SealingError::NoKey(_))
    ));
    let error = damaged.open_pair(&stored).unwrap_err().to_string();
    assert!(error.contains("this host does not have"), "{error}");
    fs::write(&file, &whole).unwrap();
    let mended = prepared(SealMethod::KeyFile, &directory).await;
    assert_eq!(mended.open_pair(&stored), Ok(pair()));
}

#[test]
fn sealed_text_is_path_bound_and_cleartext_reads() {
    let key = SealingKey::from_random([3; 32]);
    let (sealed, clear) = (SealingKeys::with(key, "a test"), SealingKeys::clear());
    let [here, there] = ["a", "b"].map(Path::new);
    let stored = sealed.seal_text("text", here).unwrap();
    assert_eq!(
        sealed.open_text(stored.clone(), here),
        Some(("text".to_owned(), true))
    );
    assert_eq!(sealed.open_text(stored.clone(), there), None);
    assert_eq!(clear.open_text(stored, here), None);
    let stored = clear.seal_text("text", here).unwrap();
    assert_eq!(
        sealed.open_text(stored, here),
        Some(("text".to_owned(), false))
    );
}

/// If `systemd-creds` does not work for this user, only the fallback to a key file is tested.
#[tokio::test]
async fn systemd_creds_key_is_readable_only_on_host() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("seal");
    let first = prepared(SealMethod::Auto, &directory).await;
    assert_eq!(first.problems(), [""; 0]);
    let stored = first.seal_pair(&pair()).unwrap();
    let file = directory.join("systemd.cred");
    let Ok(encrypted) = fs::read(&file) else {
        assert!(first.place().starts_with("the key file"), "{first:?}");
        return;
    };
    assert!(!directory.join("host.key").exists());
    let again = prepared(SealMethod::SystemdCreds, &directory).await;
    assert_eq!(again.open_pair(&stored), Ok(pair()));
    assert!(again.is_current(&stored));

    // Simulate a key file from another host, which cannot be decrypted.
    let mut damaged = encrypted.clone();
    let middle = damaged.len() / 2;
    damaged[middle] = if damaged[middle] == b'A' { b'B' } else { b'A' };
    fs::write(&file, &damaged).unwrap();
    let other = prepared(SealMethod::Auto, &directory).await;
    assert!(other.problems()[0].contains("systemd.cred"), "{other:?}");
    assert!(other.open_pair(&stored).is_err());
    let meanwhile = other.seal_pair(&pair()).unwrap();
    let strict = prepared(SealMethod::SystemdCreds, &directory).await;
    assert!(strict.seal_pair(&pair()).is_err(), "{strict:?}");
    assert_eq!(fs::read(&file).unwrap(), damaged);
    fs::write(&file, &encrypted).unwrap();
    let both = prepared(SealMethod::Auto, &directory).await;
    for stored in [&stored, &meanwhile] {
        assert_eq!(both.open_pair(stored), Ok(pair()));
    }
    assert!(both.is_current(&stored) && !both.is_current(&meanwhile));
}
