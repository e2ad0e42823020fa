//! Everything that the agent reads, made hostile: real inputs, changed at random.
//!
//! Nothing may panic, hang or eat the memory; an error is an error value; what is understood means the same when it is
//! written and read again. The changes follow `$SESAME_SEED`, for `$FUZZ_SECONDS` in all (60 unless said). An input that fails is made
//! small and written to `tests/fuzz/<target>/`; what lies there is tried first, at every run.

mod answers;
mod campaign;
mod disks;
mod edit;
mod fields;
mod seeds;
mod trusted;
mod values;
