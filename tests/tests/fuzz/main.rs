//! Fuzzes everything that the agent reads, with random mutations of realistic inputs.
//!
//! Nothing may panic, hang or exhaust memory. Every error must be returned as a value, and every
//! valid input must survive a round trip. `$SESAME_SEED` is the seed of the random numbers. All
//! targets together run for `$FUZZ_SECONDS` (default 60). A failing input is shrunk and written to
//! `tests/fuzz/<target>/`. Every run first tries the inputs in these directories.

mod answers;
mod campaign;
mod disks;
mod edit;
mod fields;
mod seeds;
mod trusted;
mod values;
