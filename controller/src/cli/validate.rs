//! `sesame-controller validate --config FILE`: reports all errors in a configuration.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::configuration::read;
use sesame_resolver::settings::check::faults;

/// Arguments for `validate`.
#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// YAML file with a SesameConfiguration
    #[arg(long, env = "SESAME_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = ValidateFormat::Text)]
    output: ValidateFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ValidateFormat {
    /// Human-readable text
    Text,
    /// One JSON object
    Json,
}

/// Returns true if there are no errors.
pub(super) fn main(args: &ValidateArgs) -> Result<bool> {
    let file = args.config.display().to_string();
    let errors = match read(&args.config) {
        Ok(configuration) => {
            let faults = faults(&configuration).into_iter();
            faults.map(|why| format!("{file}: {why}")).collect()
        }
        Err(why) => vec![why],
    };
    let mut out = std::io::stdout().lock();
    match args.output {
        ValidateFormat::Json => {
            let outcome = json!({"valid": errors.is_empty(), "file": file, "errors": errors});
            writeln!(out, "{outcome:#}")?;
        }
        ValidateFormat::Text if errors.is_empty() => writeln!(out, "{file} is valid")?,
        ValidateFormat::Text => {
            for error in &errors {
                writeln!(out, "{error}")?;
            }
        }
    }
    Ok(errors.is_empty())
}
