//! Looks up, parses and validates key pairs and CA certificates.

mod authorities;
pub(crate) mod ca_bundles;
pub(crate) mod certificate_source;
pub(crate) mod certificates;
mod chains;
pub(crate) mod client_validation;
pub(crate) mod key_pairs;
pub(crate) mod pem;
pub(crate) mod private_keys;
mod revocation_lists;
mod secret_bundles;
pub(crate) mod subject_alt_names;
pub(crate) mod ticket_keys;
pub(crate) mod trust_paths;
