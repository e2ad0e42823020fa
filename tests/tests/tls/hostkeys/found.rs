//! Searches for private keys in places that must not contain any.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sesame_tests::certs::Leaf;

pub(crate) struct Traces(Vec<Vec<u8>>);

impl Traces {
    /// Matches DER, PEM, and base64-encoded PEM as in Secrets.
    pub(crate) fn from_leaf(leaf: &Leaf) -> Self {
        let der = leaf.key().expect("a key").secret_der().to_vec();
        // Keys of the same type start with the same bytes.
        let middle = der.len() / 3;
        let der = der[middle..middle + 32].to_vec();
        let lines = leaf.key_pem.lines().filter(|line| !line.starts_with('-'));
        let mut traces: Vec<Vec<u8>> = lines
            .skip(1)
            .take(1)
            .map(|line| line.as_bytes().to_vec())
            .collect();
        for shift in 0..3 {
            // The base64 encoding of a substring depends on its offset modulo 3.
            let text = leaf.key_pem.get(90 + shift..140).unwrap_or_default();
            let encoded = STANDARD.encode(&text[..text.len() / 3 * 3]);
            traces.push(encoded.into_bytes());
        }
        traces.push(der);
        Self(traces)
    }

    /// Matches raw bytes, and base64 at each offset modulo 3.
    pub(crate) fn from_bytes(key: &[u8]) -> Self {
        let mut traces = vec![key.to_vec()];
        for shift in 0..3 {
            let rest = &key[shift..];
            traces.push(STANDARD.encode(&rest[..rest.len() / 3 * 3]).into_bytes());
        }
        Self(traces)
    }

    pub(crate) fn in_memory_of(&self, pid: i32) -> Vec<String> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
        let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("root reads it");
        let holds = |line: &&str| {
            let mut words = line.split_whitespace();
            let (range, mode) = (words.next()?, words.next()?);
            let (from, to) = range.split_once('-')?;
            let from = u64::from_str_radix(from, 16).ok()?;
            let to = u64::from_str_radix(to, 16).ok()?;
            let mut bytes = vec![0; usize::try_from(to - from).ok()?];
            (mode.starts_with("rw") && memory.read_exact_at(&mut bytes, from).is_ok())
                .then(|| self.are_in(&bytes))
        };
        let found = maps.lines().filter(|line| holds(line) == Some(true));
        found.map(str::to_owned).collect()
    }

    pub(crate) fn are_in(&self, bytes: &[u8]) -> bool {
        let has = |trace: &Vec<u8>| {
            let first = trace[0];
            let mut rest = bytes;
            while let Some(place) = rest.iter().position(|byte| *byte == first) {
                if rest[place..].starts_with(trace) {
                    return true;
                }
                rest = &rest[place + 1..];
            }
            false
        };
        self.0.iter().any(has)
    }

    pub(crate) fn files(&self, root: &Path) -> Vec<PathBuf> {
        let all = files(root).into_iter();
        all.filter(|path| std::fs::read(path).is_ok_and(|bytes| self.are_in(&bytes)))
            .collect()
    }
}

pub(crate) fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_form_of_a_key_is_found() {
    let leaf = sesame_tests::certs::Authority::new("a").issue(&["a.test"]);
    let traces = Traces::from_leaf(&leaf);
    let der = leaf.key().expect("a key").secret_der().to_vec();
    let secret = leaf.secret("a").to_string();
    for form in [leaf.key_pem.as_bytes(), &der, secret.as_bytes()] {
        assert!(traces.are_in(form));
    }
    assert!(!traces.are_in(leaf.certificate_pem.as_bytes()));
}
