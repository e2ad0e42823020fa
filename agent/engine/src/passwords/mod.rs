//! Checks the passwords of HTTP requests whose digests Envoy cannot check: bcrypt and apr1.
//!
//! Envoy asks over a Unix socket per Gateway. Never log a user's credentials, and never admit a
//! request without a completed check. The cost is limited: few checks run at the same time, few
//! wait, and right credentials are remembered.

mod apr1;
mod checker;
mod digests;
mod server;
mod sets;
mod verified;

pub(crate) use self::checker::PasswordCheckers;
pub(crate) use self::server::PasswordSocket;
pub(crate) use self::sets::{PasswordCounts, PasswordSets, PasswordVerdict};
