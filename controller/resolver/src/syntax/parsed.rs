use std::collections::HashMap;

/// Caches values parsed from text across resolutions. Never affects results.
#[derive(Debug)]
pub(crate) struct Parsed<T> {
    known: HashMap<String, (Result<T, String>, u64)>,
    round: u64,
}

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            round: 0,
        }
    }
}

impl<T: Clone> Parsed<T> {
    /// `parse` must depend only on the text.
    pub(crate) fn get(
        &mut self,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        if let Some((value, round)) = self.known.get_mut(text) {
            *round = self.round;
            return value.clone();
        }
        let value = parse(text);
        self.known
            .insert(text.to_owned(), (value.clone(), self.round));
        value
    }

    /// Evicts values that the resolution did not use.
    pub(crate) fn finish(&mut self) {
        let round = self.round;
        self.known.retain(|_, (_, used)| *used == round);
        self.round += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_used_entries_are_remembered() {
        let mut parsed = Parsed::default();
        let parse = |text: &str| Ok(text.len());
        assert_eq!(parsed.get("a", parse), Ok(1));
        parsed.finish();
        assert_eq!(parsed.get("b", parse), Ok(1));
        parsed.finish();
        assert_eq!(parsed.known.keys().collect::<Vec<_>>(), ["b"]);
    }
}
