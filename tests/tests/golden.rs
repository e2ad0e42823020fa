//! One test for each golden case in `tests/golden`, which two Envoy versions must accept. `make
//! golden` and `make regenerate` rewrite the outputs; review the diff.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use sesame_envoy::validate::{Validity, validate};
use sesame_tests::envoy::{envoy_binary, older_envoy_binary};
use sesame_tests::generated;
use sesame_tests::golden::{Case, INPUT, OUTPUTS, cases, defaults, excerpt, to_yaml};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let update = generated::is_requested();
    let mut trials = Vec::new();
    if !update {
        let complete = || {
            every_case_is_complete_and_shows_no_private_key();
            Ok(())
        };
        trials.push(Trial::test(
            "every_case_is_complete_and_shows_no_private_key",
            complete,
        ));
    }
    for case in cases().expect("golden cases") {
        let name = case.name.clone();
        trials.push(Trial::test(name, move || {
            check(&case, &envoys(), update).map_err(|error| Failed::from(format!("{error:#}")))
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn every_case_is_complete_and_shows_no_private_key() {
    let cases = cases().unwrap();
    assert!(cases.len() >= 120, "only {} golden cases", cases.len());
    for case in &cases {
        for file in [INPUT].iter().chain(&OUTPUTS) {
            let text = case.committed(file).unwrap_or_default();
            assert!(!text.is_empty(), "{}: no {file}", case.name);
            assert!(
                *file == INPUT || !text.contains("PRIVATE KEY"),
                "{}: {file} contains a private key",
                case.name
            );
        }
    }
}

fn envoys() -> [PathBuf; 2] {
    [envoy_binary(), older_envoy_binary()]
}

fn check(case: &Case, envoys: &[PathBuf], update: bool) -> Result<()> {
    let outcome = case.run()?;
    let mut problems = Vec::new();
    for (file, whole) in &outcome.files {
        let defaults = defaults(file)?;
        let difference = defaults.difference(whole);
        ensure!(
            defaults.merged(&difference) == *whole,
            "{file}: omitting defaults loses data"
        );
        let (now, committed) = (
            to_yaml(&difference),
            case.committed(file).unwrap_or_default(),
        );
        if committed == now {
            continue;
        }
        if update {
            case.write(file, &now)?;
        } else {
            let excerpt = excerpt(&committed, &now);
            problems.push(format!(
                "{file} differs; if it should, run `make regenerate`:\n{excerpt}"
            ));
        }
    }
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for envoy in envoys {
        for (gateway, bootstrap) in &outcome.bootstraps {
            match runtime.block_on(validate(envoy, directory.path(), bootstrap))? {
                Validity::Valid => {}
                Validity::Invalid { envoy_words } => {
                    let envoy = envoy.display();
                    problems.push(format!("{envoy} rejects Gateway {gateway}: {envoy_words}"));
                }
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}
