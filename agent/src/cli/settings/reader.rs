//! Rereads a running agent's settings, using its original command line.

use std::ffi::OsString;

use clap::CommandFactory as _;

use super::effective::effective;
use super::load;
use crate::cli::logging::SetLog;
use crate::cli::{Cli, Command, options, run};
use sesame_engine::reload::{ReadSettings, SettingsReading};

pub(crate) struct SettingsReader {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) set_log: SetLog,
}

impl ReadSettings for SettingsReader {
    fn read(&self) -> Result<SettingsReading, String> {
        let loaded = load(&self.arguments);
        loaded.check().map_err(|error| error.to_string())?;
        let cli = options::parse_with(self.arguments.clone(), &loaded.accepted)
            .map_err(|error| super::arguments::in_one_line(&error))?;
        let Command::Run(args) = cli.command else {
            return Err("this agent was not started by `sesame-agent run`".to_owned());
        };
        Ok(SettingsReading {
            options: run::options(*args).map_err(|error| format!("{error:#}"))?,
            settings: effective(&Cli::command(), self.arguments.clone(), &loaded),
        })
    }

    fn set_log(&self, filter: &str) -> Result<(), String> {
        (self.set_log)(filter).map_err(|error| format!("log: {error:#}"))
    }
}
