//! Orders certificates by ACME (RFC 8555), and renews them.
//!
//! `sesame_acme` decides what to order and when. An [`AcmeHost`] stores the results and serves the
//! challenges; controllers and agents have one each. Never replaces a good certificate by a
//! missing or unusable one, and never a Secret of another program.

mod account;
mod hook;
mod http;
mod keeper;
mod order;
mod probe;
mod state;

pub use self::hook::DnsHook;
pub use self::keeper::{AcmeHost, AcmeKeeper};
pub use self::order::{OrderError, stand_in};
pub use self::probe::{ProbeError, probe};
pub use self::state::{AcmeState, CertificateState};
