//! Fuzzes everything that the agent reads, with random mutations of real inputs.
//!
//! Nothing may panic, hang or exhaust memory, every error must be an error value, and anything
//! understood must survive a round trip. `$SESAME_SEED` selects the mutations, and the targets
//! share `$FUZZ_SECONDS` (default 60). A failing input is shrunk and written to
//! `tests/fuzz/<target>/`; every run tries the inputs there first.

mod answers;
mod campaign;
mod disks;
mod edit;
mod fields;
mod seeds;
mod trusted;
mod values;
