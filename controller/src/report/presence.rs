//! Tracks the lost and returned hosts of each Gateway, for Events.

use std::collections::BTreeMap;

use sesame_kinds::api::NamespacedName;

/// Maximum number of hosts with separate Events. If more hosts change, they share one Event.
const MAX_ALONE: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostPresence {
    Lost,
    Returned,
}

pub(crate) type HostPresences = BTreeMap<String, HostPresence>;
pub(crate) type AllPresences = BTreeMap<NamespacedName, HostPresences>;

/// Also returns hosts that are lost in `before` but have returned.
pub(super) fn follow(
    before: &HostPresences,
    lost: &[String],
    reports: impl Fn(&str) -> bool,
) -> HostPresences {
    let lost = lost.iter().map(|host| (host.clone(), HostPresence::Lost));
    let back = before.keys().filter(|host| reports(host));
    let mut now: HostPresences = back
        .map(|host| (host.clone(), HostPresence::Returned))
        .collect();
    now.extend(lost);
    now
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PresenceNews {
    pub(super) presence: HostPresence,
    /// Sorted. Contains either one host or more than [`MAX_ALONE`].
    pub(super) hosts: Vec<String>,
}

impl PresenceNews {
    pub(super) fn text(&self, seconds: u64) -> String {
        let Self { presence, hosts } = self;
        let named: Vec<&str> = hosts.iter().take(MAX_ALONE).map(String::as_str).collect();
        let mut who = named.join(", ");
        let more = hosts.len().saturating_sub(named.len());
        if more > 0 {
            who = format!("{who} and {more} more");
        }
        match presence {
            HostPresence::Lost => format!(
                "no report for {seconds} seconds from {who}: their addresses are removed from the \
                Gateway, and their Envoys keep serving"
            ),
            HostPresence::Returned => format!("{who} reports again after being lost"),
        }
    }
}

/// Lost hosts come first. A return is included only if an Event reported the loss.
pub(super) fn unreported(now: &HostPresences, reported: &HostPresences) -> Vec<PresenceNews> {
    let of = |wanted: HostPresence| {
        let is_news = move |(host, presence): &(&String, &HostPresence)| {
            **presence == wanted
                && match wanted {
                    HostPresence::Lost => reported.get(*host) != Some(&wanted),
                    HostPresence::Returned => reported.get(*host) == Some(&HostPresence::Lost),
                }
        };
        let hosts: Vec<String> = now
            .iter()
            .filter(is_news)
            .map(|(host, _)| host.clone())
            .collect();
        let together = hosts.len() > MAX_ALONE;
        let size = if together { hosts.len() } else { 1 };
        let news = hosts.chunks(size).map(move |hosts| PresenceNews {
            presence: wanted,
            hosts: hosts.to_vec(),
        });
        news.collect::<Vec<_>>()
    };
    [of(HostPresence::Lost), of(HostPresence::Returned)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presences(all: &[(&str, HostPresence)]) -> HostPresences {
        let all = all.iter();
        all.map(|(host, presence)| ((*host).to_owned(), *presence))
            .collect()
    }

    #[test]
    fn lost_host_returns_when_reporting_or_is_forgotten() {
        let before = presences(&[
            ("a", HostPresence::Lost),
            ("b", HostPresence::Lost),
            ("c", HostPresence::Returned),
            ("d", HostPresence::Lost),
        ]);
        let lost = ["a".to_owned(), "c".to_owned()];
        let now = follow(&before, &lost, |host| host != "d");
        assert_eq!(
            now,
            presences(&[
                ("a", HostPresence::Lost),
                ("b", HostPresence::Returned),
                ("c", HostPresence::Lost),
            ])
        );
    }

    #[test]
    fn presence_news_is_reported_once_for_many_hosts() {
        let now = presences(&[("a", HostPresence::Lost), ("b", HostPresence::Returned)]);
        let news = unreported(&now, &HostPresences::new());
        let lost = PresenceNews {
            presence: HostPresence::Lost,
            hosts: vec!["a".to_owned()],
        };
        assert_eq!(news, [lost]);
        let reported = presences(&[("a", HostPresence::Lost), ("b", HostPresence::Lost)]);
        let news = unreported(&now, &reported);
        assert_eq!(news.len(), 1);
        assert_eq!(news[0].text(90), "b reports again after being lost");
        assert_eq!(unreported(&now, &now), []);

        let all: HostPresences = (0..9)
            .map(|number| (format!("h{number}"), HostPresence::Lost))
            .collect();
        let news = unreported(&all, &HostPresences::new());
        assert_eq!(news.len(), 1);
        let text = news[0].text(90);
        assert!(
            text.contains("90 seconds from h0, h1, h2, h3, h4 and 4 more"),
            "{text}"
        );
    }
}
