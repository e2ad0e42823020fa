//! The golden cases of `tests/golden`: what comes out is what was committed, and a real Envoy takes it.
//!
//! `make golden` writes the outputs anew; they are then reviewed as a difference. `SESAME_GOLDEN_CASE` limits a run
//! to the cases whose name contains it.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use sesame_agent::envoy::validate::{Verdict, validate};
use sesame_tests::envoy::envoy_binary;
use sesame_tests::golden::{Case, INPUT, OUTPUTS, cases, excerpt};

/// Cases that run at once.
const THREADS: usize = 2;

/// Whether the outputs are to be written anew.
fn is_update() -> bool {
    std::env::var_os("SESAME_UPDATE_GOLDEN").is_some_and(|value| !value.is_empty())
}

#[test]
fn outputs_are_as_committed_and_envoy_takes_them() {
    let update = is_update();
    let only = std::env::var("SESAME_GOLDEN_CASE").unwrap_or_default();
    let envoy = envoy_binary();
    let cases: Vec<Case> = cases()
        .unwrap()
        .into_iter()
        .filter(|case| !case.is_pending() && case.name.contains(&only))
        .collect();
    let failed = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = check(case, &envoy, update) {
                        let entry = (case.name.clone(), format!("{error:#}"));
                        failed.lock().unwrap().push(entry);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort();
    for (name, error) in &failed {
        println!("---- {name}\n{error}\n");
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
    assert!(
        names.is_empty(),
        "{} of {} golden cases fail: {}",
        names.len(),
        cases.len(),
        names.join(", ")
    );
}

#[test]
fn every_case_is_complete_and_shows_no_private_key() {
    if is_update() {
        // The other test is writing them.
        return;
    }
    let cases = cases().unwrap();
    assert!(cases.len() >= 120, "only {} golden cases", cases.len());
    for case in &cases {
        let has = |file| case.committed(file).is_some_and(|text| !text.is_empty());
        assert!(has(INPUT), "{}: no {INPUT}", case.name);
        for file in OUTPUTS {
            assert_eq!(
                has(file),
                !case.is_pending(),
                "{}: {file} must be there, and must not while the case is pending",
                case.name
            );
            let text = case.committed(file).unwrap_or_default();
            assert!(
                !text.contains("PRIVATE KEY"),
                "{}: {file} shows a private key",
                case.name
            );
        }
    }
}

fn check(case: &Case, envoy: &Path, update: bool) -> Result<()> {
    let outcome = case.run()?;
    let mut problems = Vec::new();
    for (file, now) in &outcome.files {
        let committed = case.committed(file).unwrap_or_default();
        if committed == *now {
            continue;
        }
        if update {
            case.write(file, now)?;
        } else {
            problems.push(format!("{file}:\n{}", excerpt(&committed, now)));
        }
    }
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for (gateway, bootstrap) in &outcome.bootstraps {
        match runtime.block_on(validate(envoy, directory.path(), bootstrap))? {
            Verdict::Valid => {}
            Verdict::Invalid { envoy_words } => {
                problems.push(format!("Envoy refuses Gateway {gateway}: {envoy_words}"));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}
