//! Other ways to take a field.

use serde_json::{Map, Value};
use sesame_resolver::http_proxies::duration;

use super::fields::{RemainingFields, TakenField};

impl RemainingFields {
    /// Copies a field into `target` without interpreting it.
    pub(super) fn copy(&mut self, name: &str, target: &mut Map<String, Value>, to: &str) {
        if let Some(field) = self.take(name) {
            let key = to.rsplit('.').next().unwrap_or(to).to_owned();
            target.insert(key, field.carry(to));
        }
    }

    /// Takes a field, unless it has its default value, which is not needed.
    pub(super) fn take_set(&mut self, name: &str, default: &Value) -> Option<TakenField> {
        let field = self.take(name)?;
        if field.value() == default {
            field.unneeded("it is the default");
            return None;
        }
        Some(field)
    }

    /// Returns a duration in milliseconds.
    pub(super) fn duration(&mut self, name: &str, to: &str) -> Option<u64> {
        self.take(name)?.duration(to)
    }
}

impl TakenField {
    /// Returns a duration in milliseconds.
    pub(super) fn duration(self, to: &str) -> Option<u64> {
        match duration(self.as_str()) {
            Ok(time) => {
                self.carry(to);
                Some(time)
            }
            Err(why) => {
                self.refuse_duration(&why);
                None
            }
        }
    }

    pub(super) fn refuse_duration(self, why: &str) {
        self.refuse(why, "correct the duration");
    }
}
