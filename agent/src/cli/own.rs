//! `sesame-agent own`: makes the agent's user the owner of directories, in an init container with
//! few privileges.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use clap::Args;

use sesame_host::give_directory;

#[derive(Debug, Args)]
pub(crate) struct OwnArgs {
    /// Numeric user and group, separated by a colon.
    #[arg(long, value_name = "UID:GID")]
    user: UserAndGroup,
    /// Directories to change; each must exist, and belong to that user or to the user running this
    /// command.
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
}

/// Numeric user ID and group ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UserAndGroup {
    user: u32,
    group: u32,
}

impl FromStr for UserAndGroup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (user, group) = text.split_once(':')?;
            Some(Self {
                user: user.parse().ok()?,
                group: group.parse().ok()?,
            })
        };
        parse().ok_or_else(|| "expected two numbers, such as 65532:65532".to_owned())
    }
}

impl fmt::Display for UserAndGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.user, self.group)
    }
}

pub(crate) fn main(args: &OwnArgs) -> anyhow::Result<u8> {
    let OwnArgs { user, directories } = args;
    for directory in directories {
        give_directory(directory, user.user, user.group).with_context(|| {
            format!(
                "cannot change the owner of {} to {user}",
                directory.display()
            )
        })?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_requires_group() {
        let both = UserAndGroup { user: 1, group: 2 };
        assert_eq!("1:2".parse(), Ok(both));
        assert!("1".parse::<UserAndGroup>().is_err());
        assert!("sesame:sesame".parse::<UserAndGroup>().is_err());
    }
}
