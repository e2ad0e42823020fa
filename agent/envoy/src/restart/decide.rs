//! Chooses the methods for replacing an Envoy.

use super::{RestartMethod, Strategy};
use crate::process::Lineage;
use sesame_host::reserve::{REMEDY, SPARE};

/// Whether the running Envoy responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responsiveness {
    /// Envoy responds.
    Yes,
    /// The admin socket is gone, as after a failed hot restart.
    NoSocket,
    /// Envoy's main thread is stuck, or a signal has stopped the process.
    No,
}

/// Facts about both Envoy processes and the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartFacts {
    /// Place in the lineage, or `None` if hot restart is disabled.
    pub lineage: Option<Lineage>,
    /// Whether the running Envoy responds.
    pub answers: Responsiveness,
    /// Hot restart protocol of the running Envoy, if known.
    pub protocol: Option<String>,
    /// Hot restart protocol of the new binary, or why it is unknown.
    pub next_protocol: Result<String, String>,
    /// True if an interrupted restart left the INITIALIZING bit set.
    pub interrupted: Result<bool, String>,
    /// True if a launcher is available.
    pub can_launch: bool,
    /// True if the new Envoy has fewer workers.
    pub has_fewer_workers: bool,
    /// True if the running Envoy serves HTTP/3.
    pub serves_http3: bool,
    /// Files that the running Envoy watches.
    pub watches: usize,
    /// Free inotify instances.
    pub free_watches: usize,
}

/// Plan for a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartPlan {
    /// Methods to try in order.
    pub methods: Vec<RestartMethod>,
    /// True if the INITIALIZING bit must be cleared first.
    pub repair: bool,
    /// Why hot restart is not tried, unless the request excluded it.
    pub not_hot: Option<String>,
}

/// Why a restart is not attempted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestartRefused {
    /// Two Envoy processes would exceed the limit on inotify instances, and one would abort.
    #[error(
        "the new Envoy would watch {needed} more files, but only {free} inotify instances are free; the running Envoy keeps serving. {REMEDY}"
    )]
    Watches {
        /// Files that the second Envoy would watch.
        needed: usize,
        /// Free inotify instances.
        free: usize,
    },
    /// The running Envoy can be neither taken over nor drained, because it does not respond.
    #[error(
        "the running Envoy is unresponsive (stopped or stuck), so its connections cannot be taken over"
    )]
    Silent,
    /// The requested hot restart is impossible.
    #[error("no hot restart: {0}")]
    NotHot(String),
}

/// Decides how to replace the running Envoy.
pub fn decide(strategy: Strategy, facts: &RestartFacts) -> Result<RestartPlan, RestartRefused> {
    use RestartMethod::{Handover, Hot};
    if facts.answers == Responsiveness::No {
        return Err(RestartRefused::Silent);
    }
    if facts.watches + SPARE > facts.free_watches {
        return Err(RestartRefused::Watches {
            needed: facts.watches,
            free: facts.free_watches,
        });
    }
    let plan = |methods: &[RestartMethod], repair: bool, not_hot: Option<String>| RestartPlan {
        methods: methods.to_vec(),
        repair,
        not_hot,
    };
    match (strategy, hot(facts)) {
        (Strategy::Handover, _) => Ok(plan(&[Handover], false, None)),
        (Strategy::Hot, Ok(repair)) => Ok(plan(&[Hot], repair, None)),
        (Strategy::Hot, Err(why)) => Err(RestartRefused::NotHot(why)),
        // A new Envoy with fewer workers would close the surplus sockets, which resets all
        // connections waiting on them.
        (Strategy::Auto, Ok(_)) if facts.has_fewer_workers => {
            let why = "the new Envoy has fewer workers".to_owned();
            Ok(plan(&[Handover], false, Some(why)))
        }
        // Try a hot restart twice, because a failed one may remove the first Envoy's admin socket,
        // and no handover could then drain that Envoy.
        (Strategy::Auto, Ok(repair)) => Ok(plan(&[Hot, Hot, Handover], repair, None)),
        (Strategy::Auto, Err(why)) => Ok(plan(&[Handover], false, Some(why))),
    }
}

fn hot(facts: &RestartFacts) -> Result<bool, String> {
    let RestartFacts {
        lineage,
        answers: _,
        protocol,
        next_protocol,
        interrupted,
        can_launch,
        has_fewer_workers: _,
        serves_http3,
        watches: _,
        free_watches: _,
    } = facts;
    if lineage.is_none() {
        return Err("the running Envoy was started without hot restart".to_owned());
    }
    if !can_launch {
        return Err("the agent cannot start an Envoy that outlives it".to_owned());
    }
    // The old Envoy's main thread passes datagrams on over a Unix socket and blocks if its queue of ten
    // is full. The new Envoy's main thread meanwhile waits for the old one's statistics, so that
    // neither continues.
    if *serves_http3 {
        return Err(
            "the running Envoy serves HTTP/3, and both Envoys could block each other".to_owned(),
        );
    }
    let next = next_protocol.as_ref().map_err(Clone::clone)?;
    if let Some(protocol) = protocol
        && protocol != next
    {
        return Err(format!(
            "the running Envoy uses hot restart version {protocol}, but the new Envoy uses {next}"
        ));
    }
    interrupted.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> RestartFacts {
        RestartFacts {
            lineage: Some(Lineage {
                base_id: Some(1),
                epoch: 0,
            }),
            answers: Responsiveness::Yes,
            protocol: Some("11.104".to_owned()),
            next_protocol: Ok("11.104".to_owned()),
            interrupted: Ok(false),
            can_launch: true,
            has_fewer_workers: false,
            serves_http3: false,
            watches: 5,
            free_watches: 50,
        }
    }

    fn methods(strategy: Strategy, facts: &RestartFacts) -> Vec<RestartMethod> {
        decide(strategy, facts).unwrap().methods
    }

    #[test]
    fn restart_prefers_hot_and_falls_back_to_handover() {
        assert_eq!(
            methods(Strategy::Auto, &good()),
            [
                RestartMethod::Hot,
                RestartMethod::Hot,
                RestartMethod::Handover
            ]
        );
        assert_eq!(methods(Strategy::Hot, &good()), [RestartMethod::Hot]);
        assert_eq!(
            methods(Strategy::Handover, &good()),
            [RestartMethod::Handover]
        );
    }

    #[test]
    fn missing_condition_leaves_handover_with_its_reason() {
        type Spoil = fn(&mut RestartFacts);
        let cases: [(&str, Spoil); 5] = [
            ("without hot restart", |f| f.lineage = None),
            ("version 11.104", |f| {
                f.next_protocol = Ok("12.1".to_owned());
            }),
            ("no such file", |f| {
                f.interrupted = Err("no such file".to_owned());
            }),
            ("outlives", |f| f.can_launch = false),
            ("not run", |f| f.next_protocol = Err("not run".to_owned())),
        ];
        for (word, spoil) in cases {
            let mut facts = good();
            spoil(&mut facts);
            let plan = decide(Strategy::Auto, &facts).unwrap();
            assert_eq!(plan.methods, [RestartMethod::Handover]);
            assert!(plan.not_hot.unwrap().contains(word), "{word}");
            let refused = decide(Strategy::Hot, &facts).unwrap_err().to_string();
            assert!(refused.contains(word), "{refused}");
        }
    }

    #[test]
    fn http3_is_never_restarted_hot() {
        let facts = RestartFacts {
            serves_http3: true,
            ..good()
        };
        assert_eq!(methods(Strategy::Auto, &facts), [RestartMethod::Handover]);
        let refused = decide(Strategy::Hot, &facts).unwrap_err().to_string();
        assert!(refused.contains("HTTP/3"), "{refused}");
    }

    #[test]
    fn fewer_workers_restart_hot_only_on_request() {
        let mut facts = good();
        facts.has_fewer_workers = true;
        let plan = decide(Strategy::Auto, &facts).unwrap();
        assert_eq!(plan.methods, [RestartMethod::Handover]);
        assert!(plan.not_hot.unwrap().contains("fewer workers"));
        assert_eq!(methods(Strategy::Hot, &facts), [RestartMethod::Hot]);
    }

    #[test]
    fn interrupted_mark_is_repaired_without_admin_socket() {
        let mut facts = good();
        facts.interrupted = Ok(true);
        facts.answers = Responsiveness::NoSocket;
        facts.protocol = None;
        let plan = decide(Strategy::Auto, &facts).unwrap();
        assert!(plan.repair);
        assert_eq!(plan.methods[0], RestartMethod::Hot);
    }

    #[test]
    fn restart_is_refused_if_it_harms_serving_envoy() {
        let mut facts = good();
        facts.answers = Responsiveness::No;
        assert_eq!(decide(Strategy::Auto, &facts), Err(RestartRefused::Silent));
        let mut facts = good();
        facts.free_watches = 6;
        for strategy in [Strategy::Auto, Strategy::Hot, Strategy::Handover] {
            assert!(matches!(
                decide(strategy, &facts),
                Err(RestartRefused::Watches { needed: 5, free: 6 })
            ));
        }
    }
}
