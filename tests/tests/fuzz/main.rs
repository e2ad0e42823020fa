//! Fuzzes everything that the agent reads, with random mutations of real inputs.
//!
//! Nothing may panic, hang or exhaust memory. Every error must be returned as a value, and every
//! valid input must survive a round trip. `$SESAME_SEED` selects the mutations, and the targets
//! share `$FUZZ_SECONDS` (default 60). A failing input is shrunk and written to
//! `tests/fuzz/<target>/`. Every run tries the inputs in that directory first.

mod answers;
mod campaign;
mod disks;
mod edit;
mod fields;
mod seeds;
mod trusted;
mod values;
