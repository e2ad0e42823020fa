//! Tests a crash after each step, and valid and invalid answers.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
};
use sesame_proto::at_rest::SealingKey;

use super::store::due_after;
use super::*;

type Files<'a> = &'a [(&'a str, &'a Vec<u8>)];

const NOW: i64 = 1_800_000_000;

fn request(state: &Path, rest: &str) -> CertificateRequest {
    let text = format!("secret=default/client,{rest}");
    let request = CertificateRequest::parse(&text).unwrap();
    request.kept_below(state)
}

fn sealed() -> RequestContext {
    let key = SealingKey::from_random([1; 32]);
    RequestContext {
        sealing: Arc::new(SealingKeys::with(key, "a test")),
        troubles: Troubles::default(),
    }
}

/// Valid for 300 seconds from `NOW`.
fn sign(request: &str) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(params, KeyPair::generate().unwrap());
    let mut request = CertificateSigningRequestParams::from_pem(request).unwrap();
    let at = |second: i64| {
        let second = u64::try_from(second).unwrap();
        (std::time::UNIX_EPOCH + std::time::Duration::from_secs(second)).into()
    };
    request.params.not_before = at(NOW);
    request.params.not_after = at(NOW + 300);
    request.signed_by(&issuer).unwrap().pem()
}

fn open(state: &RequestState) -> String {
    state.open.as_ref().unwrap().pem.clone()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn pair_is_renewed_by_two_thirds_of_life() {
    let dir = tempfile::tempdir().unwrap();
    let context = sealed();
    let request = request(dir.path(), "commonName=edge,uri=spiffe://a.test/edge");
    let first = step(&request, &context, NOW);
    assert!(first.pair.is_none());
    let (severity, why) = first.problem.as_ref().unwrap();
    assert_eq!(*severity, Severity::Error);
    assert!(why.contains("has no certificate yet"), "{why}");
    assert_eq!(open(&step(&request, &context, NOW)), open(&first));
    fs::write(request.answer_file(), sign(&open(&first))).unwrap();
    let taken = step(&request, &context, NOW);
    assert!(taken.pair.is_some() && taken.open.is_none() && taken.problem.is_none());
    let renew_at = taken.renew_at.unwrap();
    assert!((NOW + 180..=NOW + 200).contains(&renew_at), "{renew_at}");
    assert_eq!(names(&request.directory), ["pair"]);
    assert!(step(&request, &context, renew_at - 1).open.is_none());

    let due = step(&request, &context, renew_at);
    let (severity, why) = due.problem.as_ref().unwrap();
    assert_eq!(*severity, Severity::Warning, "{why}");
    assert!(why.contains("is due for renewal"), "{why}");
    let old = due.pair.as_ref().unwrap().pair.clone();
    assert_eq!(old, taken.pair.unwrap().pair);
    for (answer, words) in [
        (sign(&open(&first)), "does not match"),
        (sign(&open(&due))[..200].to_owned(), "certificate.pem"),
        (String::new(), "certificate.pem"),
    ] {
        fs::write(request.answer_file(), answer).unwrap();
        let refused = step(&request, &context, renew_at + 1);
        let (severity, why) = refused.problem.as_ref().unwrap();
        assert_eq!(*severity, Severity::Error);
        assert!(why.contains(words), "{why}");
        assert!(!why.contains("PRIVATE"), "{why}");
        assert_eq!(refused.pair.as_ref().unwrap().pair, old);
        assert_eq!(open(&refused), open(&due));
    }
    fs::write(request.answer_file(), sign(&open(&due))).unwrap();
    let expired = step(&request, &context, NOW + 300);
    let (_, why) = expired.problem.as_ref().unwrap();
    assert!(why.contains("has expired"), "{why}");
    let renewed = step(&request, &context, renew_at + 2).pair.unwrap().pair;
    assert_ne!(renewed.private_key, old.private_key);
}

#[test]
fn renewal_times_of_simultaneous_certificates_spread_out() {
    let life = 90 * 86_400;
    let due: Vec<i64> = (0..1000)
        .map(|host| due_after(life, &host.to_string()))
        .collect();
    let (first, last) = (due.iter().min().unwrap(), due.iter().max().unwrap());
    assert!(life * 3 / 5 <= *first && *last <= life * 2 / 3);
    for day in 0..6 {
        let from = life * 3 / 5 + day * 86_400;
        let share = due.iter().filter(|at| (from..from + 86_400).contains(*at));
        assert!((100..250).contains(&share.count()), "day {day}");
    }
    assert_eq!(due_after(0, ""), 0);
}

#[test]
fn next_agent_has_right_pair_after_any_crash() {
    let context = sealed();
    let whole = tempfile::tempdir().unwrap();
    let request_there = request(whole.path(), "commonName=edge");
    let waits = step(&request_there, &context, NOW);
    let file = |name: &str| fs::read(request_there.directory.join(name)).unwrap();
    let (pending, shown) = (file("pending"), file("request.pem"));
    let answer = sign(&open(&waits));
    fs::write(request_there.answer_file(), &answer).unwrap();
    step(&request_there, &context, NOW);
    let pair = file("pair");
    let answer = answer.into_bytes();
    let (p, s, a, k) = (
        ("pending", &pending),
        ("request.pem", &shown),
        ("certificate.pem", &answer),
        ("pair", &pair),
    );
    let half = pending[..pending.len() / 2].to_vec();
    // The files after each write or removal, and whether one more step completes the pair.
    let states: [(Files<'_>, bool); 9] = [
        (&[("pending.new", &half)], false),
        (&[p], false),
        (&[p, ("request.pem.new", &half)], false),
        (&[p, s], false),
        (&[p, s, a], true),
        (&[p, s, a, ("pair.new", &half)], true),
        (&[p, s, a, k], true),
        (&[p, a, k], true),
        (&[p, k], true),
    ];
    for (files, done) in states {
        let dir = tempfile::tempdir().unwrap();
        let request = request(dir.path(), "commonName=edge");
        sesame_host::create_directory(&request.directory).unwrap();
        for (name, content) in files {
            sesame_host::write_file(&request.directory.join(name), content).unwrap();
        }
        let there: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        let next = step(&request, &context, NOW);
        assert_eq!(next.pair.is_some(), done, "{there:?}: {:?}", next.problem);
        assert_eq!(next.open.is_none(), done, "{there:?}");
        if !done {
            if there.contains(&"pending") {
                assert_eq!(open(&next), open(&waits), "{there:?}");
            }
            fs::write(request.answer_file(), sign(&open(&next))).unwrap();
        }
        let after = step(&request, &context, NOW);
        assert!(after.pair.is_some(), "{there:?}: {:?}", after.problem);
        assert!(!request.directory.join("pending").exists());
        assert!(!request.answer_file().exists());
    }
}

#[test]
fn new_names_request_certificate_and_lost_key_fails() {
    let dir = tempfile::tempdir().unwrap();
    let context = sealed();
    let before = request(dir.path(), "commonName=edge");
    let first = step(&before, &context, NOW);
    fs::write(before.answer_file(), sign(&open(&first))).unwrap();
    let pair = step(&before, &context, NOW).pair.unwrap().pair;
    let after = request(dir.path(), "commonName=edge,dnsName=a.test");
    let asked = step(&after, &context, NOW);
    assert_eq!(asked.pair.unwrap().pair, pair, "the old pair stays in use");
    assert_ne!(asked.open.unwrap().pem, open(&first));
    // The setting matches the existing pair again, so no request is needed.
    let back = step(&before, &context, NOW);
    assert!(back.open.is_none() && back.pair.is_some());
    assert_eq!(names(&before.directory), ["pair"]);

    let lost = RequestContext {
        sealing: Arc::new(SealingKeys::with(SealingKey::from_random([2; 32]), "other")),
        troubles: Troubles::default(),
    };
    let state = step(&before, &lost, NOW);
    let (severity, why) = state.problem.unwrap();
    assert_eq!(severity, Severity::Error);
    assert!(
        why.contains("which this host does not have; restore the sealing key, or remove"),
        "{why}"
    );
    assert!(before.directory.join("pair").exists());
    let clear = fs::read(before.directory.join("pair")).unwrap();
    assert!(!String::from_utf8_lossy(&clear).contains("PRIVATE"));
}
