//! Parses settings that consist of comma-separated `NAME=VALUE` fields.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sesame_kinds::api::NamespacedName;
use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};

/// Fields that have not been consumed yet.
pub(super) struct SettingFields<'a>(BTreeMap<&'a str, Vec<&'a str>>);

impl<'a> SettingFields<'a> {
    pub(super) fn of(text: &'a str) -> Result<Self, String> {
        let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} has no `=`"))?;
            fields.entry(name.trim()).or_default().push(value.trim());
        }
        Ok(Self(fields))
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    pub(super) fn object(&mut self, field: &str) -> Result<NamespacedName, String> {
        let text = self.required(field)?;
        match text.split_once('/') {
            Some((namespace, name)) if is_dns_label(namespace) && is_dns_subdomain(name) => {
                Ok(NamespacedName::new(namespace, name))
            }
            _ => Err(format!("{field} is {text:?}, expected NAMESPACE/NAME")),
        }
    }

    pub(super) fn file(&mut self, field: &str) -> Result<PathBuf, String> {
        let path = Path::new(self.required(field)?);
        if path.is_absolute() {
            Ok(path.to_owned())
        } else {
            let path = path.display().to_string();
            Err(format!("{field} is {path:?}, expected an absolute path"))
        }
    }

    pub(super) fn required(&mut self, field: &str) -> Result<&'a str, String> {
        self.optional(field)?
            .ok_or_else(|| format!("{field} is missing"))
    }

    pub(super) fn optional(&mut self, field: &str) -> Result<Option<&'a str>, String> {
        match self.all(field)[..] {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            _ => Err(format!("{field} is set twice")),
        }
    }

    pub(super) fn all(&mut self, field: &str) -> Vec<&'a str> {
        self.0.remove(field).unwrap_or_default()
    }

    pub(super) fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            Some(other) => Err(format!("unknown field {other:?}")),
            None => Ok(()),
        }
    }
}
