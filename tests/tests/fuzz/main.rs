//! Fuzzes everything that the agent reads. Nothing may panic, hang or exhaust memory. The targets
//! run for `$FUZZ_SECONDS` (default 60) with `$SESAME_SEED`. Failing inputs are shrunk and kept in
//! `tests/fuzz/<target>/`.

mod answers;
mod campaign;
mod disks;
mod edit;
mod fields;
mod seeds;
mod trusted;
mod values;
