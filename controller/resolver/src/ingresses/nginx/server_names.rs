//! Additional names for an Ingress's hosts: `server-alias` and `from-to-www-redirect`.

use std::collections::BTreeSet;

use super::Annotations;
use super::values::{boolean, list};
use crate::filters::rewrites::RedirectTo;
use crate::syntax::hostnames::Hostname;
use sesame_kinds::api::{Ingress, Metadata, NGINX_PREFIX};

const MAX_ALIASES: usize = 16;
const NAME_REDIRECT_STATUS: u32 = 308;

#[derive(Default)]
pub(in super::super) struct ServerNames {
    /// The Ingress's first rule with a host also applies to these aliases.
    pub(in super::super) aliases: Vec<Hostname>,
    pub(super) redirects_www: bool,
}

impl ServerNames {
    pub(super) fn read(from: &mut Annotations<'_>) -> Self {
        let aliases = from.read("server-alias", |text| {
            let aliases: Vec<&str> = list(text).collect();
            if aliases.len() > MAX_ALIASES {
                return Err(format!("expected at most {MAX_ALIASES} hosts"));
            }
            let aliases = aliases.into_iter().map(Hostname::parse);
            aliases.collect::<Result<_, _>>()
        });
        let redirects_www = from.read("from-to-www-redirect", boolean);
        Self {
            aliases: aliases.unwrap_or_default(),
            redirects_www: redirects_www.unwrap_or_default(),
        }
    }

    /// Returns the host with `www.` added or removed, or `None` if redirects are disabled or the
    /// host is a wildcard.
    pub(in super::super) fn redirect(&self, host: &Hostname) -> Option<(Hostname, RedirectTo)> {
        let name = Some(host.as_str()).filter(|name| self.redirects_www && !name.is_empty())?;
        let other = match name.strip_prefix("www.") {
            Some(bare) => bare.to_owned(),
            None => format!("www.{name}"),
        };
        let redirect = RedirectTo {
            scheme: "",
            host: name.to_owned(),
            port: None,
            path: None,
            status: NAME_REDIRECT_STATUS,
        };
        // `www.` cannot precede a wildcard.
        Some((Hostname::parse(&other).ok()?, redirect))
    }
}

/// Returns true if the Ingress may serve hosts that its rules do not list.
pub(crate) fn has_more_names(metadata: &Metadata) -> bool {
    metadata.annotations.iter().any(|(name, _)| {
        let name = name.strip_prefix(NGINX_PREFIX);
        matches!(name, Some("server-alias" | "from-to-www-redirect"))
    })
}

/// Hosts of Ingress rules, which take precedence over additional names.
#[derive(Default)]
pub(in super::super) struct RuleHosts<'w>(BTreeSet<(&'w str, &'w str)>);

impl<'w> RuleHosts<'w> {
    pub(in super::super) fn of(
        ingresses: impl Iterator<Item = (&'w str, &'w Ingress)> + Clone,
    ) -> Self {
        let mut all = ingresses.clone();
        if !all.any(|(_, ingress)| has_more_names(&ingress.metadata)) {
            return Self::default();
        }
        let hosts = ingresses.flat_map(|(class, ingress)| {
            let rules = ingress.spec.rules.iter();
            rules.map(move |rule| (class, rule.host.as_str()))
        });
        Self(hosts.collect())
    }

    pub(in super::super) fn has(&self, class: &str, host: &Hostname) -> bool {
        self.0.contains(&(class, host.as_str()))
    }
}
