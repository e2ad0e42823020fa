//! Iteration counts and random numbers for randomized tests.

/// Returns the environment variable `name`. If unset, returns `full` in soak runs, or else `short`.
pub fn count(name: &str, short: usize, full: usize) -> usize {
    let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
    let usual = if std::env::var_os("SESAME_SOAK").is_some() {
        full
    } else {
        short
    };
    given.unwrap_or(usual)
}

/// A `SplitMix64` generator.
pub struct Moments(u64);

impl Moments {
    /// Seeds the generator with `$SESAME_SEED` or 1, and prints the seed.
    #[allow(clippy::new_without_default, reason = "it prints the seed")]
    pub fn new() -> Self {
        let seed = std::env::var("SESAME_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(1);
        eprintln!("SESAME_SEED={seed}");
        Self(seed)
    }

    /// Seeds the generator.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
