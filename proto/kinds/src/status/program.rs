//! Adds host reports to a Gateway's status.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sesame_proto::provenance::Provenance;

use super::{
    Condition, ConditionStatus, ConditionType, GatewayStatus, GatewayStatusAddress, Grounds,
    ListenerSetStatus, ListenerStatus, Reason, certificates,
};
use crate::api::AddressType;
use crate::world::ObjectKey;

/// The combined reports of a Gateway's hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programmed {
    /// IP addresses or hostnames at which the Gateway is served.
    pub addresses: Vec<String>,
    /// Number of hosts that run the desired revision.
    pub hosts_ready: u32,
    /// Number of all hosts.
    pub hosts: u32,
    /// Listeners that hosts cannot open, or for which they have no certificate, each with a reason.
    /// Keyed by the snapshot's names, or by the object's names in the result of `of_object`.
    pub refused_listeners: BTreeMap<String, String>,
    /// Listeners that fail to present one or more of their certificates, each with a reason. Keyed
    /// like `refused_listeners`.
    pub unshown_certificates: BTreeMap<String, String>,
    /// Addresses in `spec.addresses` that no host has, each with a reason.
    pub unusable_addresses: BTreeMap<String, String>,
    /// Why the Gateway has no address yet. `None` if it has one, or if hosts must still report it.
    pub awaited: Option<String>,
    /// Notes for the condition's message.
    pub notes: Vec<String>,
}

impl Programmed {
    /// Returns a copy with only the listeners of one object, keyed by their names in the object.
    #[must_use]
    pub fn of_object(&self, object: &ObjectKey) -> Self {
        let object = object.to_string();
        let own_listener = |(name, why): (&String, &String)| {
            let provenance = Provenance::parse(name).ok()?;
            let listener = provenance.listener()?.to_owned();
            (provenance.object().to_string() == object).then(|| (listener, why.clone()))
        };
        let own_listeners =
            |all: &BTreeMap<String, String>| all.iter().filter_map(own_listener).collect();
        Self {
            refused_listeners: own_listeners(&self.refused_listeners),
            unshown_certificates: own_listeners(&self.unshown_certificates),
            ..self.clone()
        }
    }
}

/// Adds the hosts' reports to `status`. Changes only pending conditions, so an invalid Gateway or
/// listener stays invalid.
pub fn program(status: &mut GatewayStatus, programmed: &Programmed) {
    let Programmed {
        addresses,
        hosts_ready,
        hosts: _,
        refused_listeners: _,
        unshown_certificates: _,
        unusable_addresses,
        awaited,
        notes: _,
    } = programmed;
    let open_listeners = program_listeners(&mut status.listeners, programmed);
    let is_somewhere = if let Some(condition) = pending(&mut status.conditions) {
        let fault = if !unusable_addresses.is_empty() {
            let why: Vec<String> = unusable_addresses
                .iter()
                .map(|(address, why)| format!("spec.addresses {address:?} cannot be used: {why}"))
                .collect();
            Some((Reason::AddressNotUsable, why.join("; ")))
        } else if let Some(why) = awaited {
            Some((
                Reason::AddressNotAssigned,
                noted(&format!("but {why}"), programmed),
            ))
        } else if addresses.is_empty() {
            let message = noted("but no host reported an address", programmed);
            Some((Reason::AddressNotAssigned, message))
        } else {
            let all_refused = open_listeners == 0 && !status.listeners.is_empty();
            all_refused.then(|| (Reason::Invalid, noted(ALL_REFUSED, programmed)))
        };
        match fault {
            // Hosts cannot provide the missing address, so do not wait for their reports.
            Some((reason, why)) if awaited.is_some() => {
                set(condition, ConditionStatus::False, reason, &why);
            }
            fault => decide(condition, fault, programmed),
        }
        true
    } else {
        // Report the usable addresses even if others are unusable.
        let in_part = status.conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Programmed
                && condition.reason == Reason::AddressNotUsable
        });
        in_part && *hosts_ready > 0
    };
    if is_somewhere {
        status.addresses = addresses.iter().map(|a| status_address(a)).collect();
    }
}

/// Adds the reports of the Gateway's hosts to a ListenerSet's status.
pub fn program_listener_set(status: &mut ListenerSetStatus, programmed: &Programmed) {
    let open_listeners = program_listeners(&mut status.listeners, programmed);
    if let Some(condition) = pending(&mut status.conditions) {
        let all_refused = || (Reason::ListenersNotValid, noted(ALL_REFUSED, programmed));
        let fault = (open_listeners == 0).then(all_refused);
        decide(condition, fault, programmed);
    }
}

/// Adds host reports to a policy's conditions. The policy is programmed once all hosts run the
/// desired revision.
pub fn program_policy(conditions: &mut [Condition], programmed: &Programmed) {
    let Some(condition) = pending(conditions) else {
        return;
    };
    let message = noted("", programmed);
    if programmed.hosts > 0 && programmed.hosts_ready == programmed.hosts {
        let status = ConditionStatus::True;
        set(condition, status, Reason::Programmed, &message);
    } else {
        wait(condition, programmed.hosts, &message);
    }
}

const ALL_REFUSED: &str = "but every listener was rejected; see status.listeners";

/// The condition stays pending until a host is ready.
fn decide(condition: &mut Condition, fault: Option<Grounds>, programmed: &Programmed) {
    if programmed.hosts_ready == 0 {
        wait(condition, programmed.hosts, &noted("", programmed));
    } else if let Some((reason, why)) = fault {
        set(condition, ConditionStatus::False, reason, &why);
    } else {
        let refused: Vec<&str> = programmed
            .refused_listeners
            .keys()
            .map(String::as_str)
            .collect();
        let without = match refused.as_slice() {
            [] => String::new(),
            refused => format!("without listeners {}", refused.join(", ")),
        };
        let message = noted(&without, programmed);
        set(
            condition,
            ConditionStatus::True,
            Reason::Programmed,
            &message,
        );
    }
}

/// Returns the number of open listeners.
fn program_listeners(listeners: &mut [ListenerStatus], programmed: &Programmed) -> usize {
    certificates::report_unshown(listeners, &programmed.unshown_certificates);
    let progress = progress(programmed);
    let mut open = 0_usize;
    for listener in listeners {
        let Some(condition) = pending(&mut listener.conditions) else {
            continue;
        };
        if let Some(why) = programmed.refused_listeners.get(&listener.name) {
            // The reason is CertificateNotShown only if the listener has no other problem.
            let unshown = programmed.unshown_certificates.get(&listener.name);
            let reason = match unshown {
                Some(unshown) if unshown == why => Reason::CertificateNotShown,
                _ => Reason::Invalid,
            };
            set(condition, ConditionStatus::False, reason, why);
        } else if programmed.hosts_ready > 0 {
            open += 1;
            set(
                condition,
                ConditionStatus::True,
                Reason::Programmed,
                &progress,
            );
        } else {
            wait(condition, programmed.hosts, &progress);
        }
    }
    open
}

fn progress(programmed: &Programmed) -> String {
    format!(
        "programmed on {} of {} hosts",
        programmed.hosts_ready, programmed.hosts
    )
}

fn noted(addition: &str, programmed: &Programmed) -> String {
    let mut message = progress(programmed);
    if !addition.is_empty() {
        message = format!("{message}, {addition}");
    }
    let notes = programmed.notes.iter().cloned();
    let all: Vec<String> = std::iter::once(message).chain(notes).collect();
    all.join("; ")
}

fn status_address(value: &str) -> GatewayStatusAddress {
    GatewayStatusAddress {
        type_: match value.parse::<IpAddr>() {
            Ok(_) => AddressType::IpAddress,
            Err(_) => AddressType::Hostname,
        },
        value: value.to_owned(),
    }
}

fn pending(conditions: &mut [Condition]) -> Option<&mut Condition> {
    conditions.iter_mut().find(|condition| {
        condition.type_ == ConditionType::Programmed && condition.reason == Reason::Pending
    })
}

fn set(condition: &mut Condition, status: ConditionStatus, reason: Reason, message: &str) {
    condition.status = status;
    condition.reason = reason;
    message.clone_into(&mut condition.message);
}

fn wait(condition: &mut Condition, hosts: u32, progress: &str) {
    if hosts > 0 {
        set(condition, ConditionStatus::False, Reason::Pending, progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ListenerStatus;

    fn open() -> Condition {
        Condition::new(
            ConditionType::Programmed,
            ConditionStatus::Unknown,
            Reason::Pending,
            "waiting",
            3,
        )
    }

    fn status() -> GatewayStatus {
        let mut bad = open();
        set(&mut bad, ConditionStatus::False, Reason::Invalid, "bad");
        let listener = |name: &str, condition| ListenerStatus {
            name: name.to_owned(),
            conditions: vec![condition],
            ..ListenerStatus::default()
        };
        GatewayStatus {
            conditions: vec![open()],
            listeners: vec![listener("good", open()), listener("bad", bad)],
            ..GatewayStatus::default()
        }
    }

    fn report() -> Programmed {
        Programmed {
            addresses: vec!["192.0.2.7".to_owned(), "edge.example.com".to_owned()],
            hosts_ready: 2,
            hosts: 3,
            ..Programmed::default()
        }
    }

    #[test]
    fn ready_hosts_program_only_valid_listeners() {
        let mut status = status();
        program(&mut status, &report());
        assert_eq!(status.conditions[0].status, ConditionStatus::True);
        assert_eq!(status.conditions[0].message, "programmed on 2 of 3 hosts");
        assert_eq!(status.listeners[0].conditions[0].reason, Reason::Programmed);
        assert_eq!(status.listeners[1].conditions[0].message, "bad");
        assert_eq!(status.addresses[0].type_, AddressType::IpAddress);
        assert_eq!(status.addresses[1].type_, AddressType::Hostname);
    }

    #[test]
    fn gateway_with_bad_address_still_reports_addresses() {
        let mut status = status();
        set(
            &mut status.conditions[0],
            ConditionStatus::False,
            Reason::AddressNotUsable,
            "no IP",
        );
        program(&mut status, &report());
        assert_eq!(status.conditions[0].message, "no IP");
        assert_eq!(status.listeners[0].conditions[0].reason, Reason::Programmed);
        assert_eq!(status.addresses.len(), 2);
    }

    #[test]
    fn host_notes_appear_only_with_programmed_host_count() {
        let mut report = report();
        report.notes = vec!["one is lost".to_owned(), "two are late".to_owned()];
        let message = |report: &Programmed| {
            let mut status = status();
            program(&mut status, report);
            assert!(!status.listeners[0].conditions[0].message.contains("lost"));
            status.conditions.remove(0).message
        };
        assert_eq!(
            message(&report),
            "programmed on 2 of 3 hosts; one is lost; two are late"
        );
        let unusable = ("192.0.2.1".to_owned(), "no host has it".to_owned());
        report.unusable_addresses.extend([unusable]);
        assert!(!message(&report).contains("lost"));
        let nowhere = Programmed {
            notes: report.notes,
            ..Programmed::default()
        };
        assert_eq!(message(&nowhere), "waiting");
    }

    #[test]
    fn awaited_address_is_reported_regardless_of_ready_hosts() {
        for (hosts_ready, progress) in [
            (0, "programmed on 0 of 3 hosts"),
            (2, "programmed on 2 of 3 hosts"),
        ] {
            let mut status = status();
            let report = Programmed {
                addresses: Vec::new(),
                hosts_ready,
                awaited: Some("Service ns/edge has no address yet".to_owned()),
                ..report()
            };
            program(&mut status, &report);
            let condition = &status.conditions[0];
            assert_eq!(condition.status, ConditionStatus::False);
            assert_eq!(condition.reason, Reason::AddressNotAssigned);
            let expected = format!("{progress}, but Service ns/edge has no address yet");
            assert_eq!(condition.message, expected);
        }
    }

    #[test]
    fn without_a_ready_host_nothing_is_programmed() {
        let mut status = status();
        let report = Programmed {
            hosts_ready: 0,
            ..report()
        };
        program(&mut status, &report);
        assert_eq!(status.conditions[0].status, ConditionStatus::False);
        assert_eq!(status.conditions[0].reason, Reason::Pending);
    }

    #[test]
    fn refused_listener_explains_and_bad_address_fails_gateway() {
        let mut status = status();
        let mut report = report();
        report
            .refused_listeners
            .insert("good".to_owned(), "port 80 is taken".to_owned());
        program(&mut status, &report);
        assert_eq!(
            status.listeners[0].conditions[0].message,
            "port 80 is taken"
        );
        assert_eq!(status.conditions[0].reason, Reason::Invalid);

        let mut status = self::status();
        let mut report = self::report();
        report
            .unusable_addresses
            .insert("192.0.2.1".to_owned(), "no host has it".to_owned());
        program(&mut status, &report);
        assert_eq!(status.conditions[0].reason, Reason::AddressNotUsable);
    }

    #[test]
    fn listener_needs_certificate_but_older_one_suffices() {
        let mut report = report();
        let listener = || "good".to_owned();
        report
            .unshown_certificates
            .insert(listener(), "no files (host a)".to_owned());
        let programmed_condition = |report: &Programmed| {
            let mut status = status();
            program(&mut status, report);
            let condition = &status.listeners[0].conditions[0];
            (condition.status, condition.reason)
        };
        assert_eq!(
            programmed_condition(&report),
            (ConditionStatus::True, Reason::Programmed)
        );
        for (refused, reason) in [
            ("no files (host a)", Reason::CertificateNotShown),
            ("port 80 is taken (host b)", Reason::Invalid),
        ] {
            report
                .refused_listeners
                .insert(listener(), refused.to_owned());
            assert_eq!(
                programmed_condition(&report),
                (ConditionStatus::False, reason)
            );
        }
    }

    #[test]
    fn set_is_programmed_while_one_listener_is_open() {
        let set = || ListenerSetStatus {
            conditions: vec![open()],
            listeners: vec![
                ListenerStatus {
                    name: "a".to_owned(),
                    conditions: vec![open()],
                    ..ListenerStatus::default()
                },
                ListenerStatus {
                    name: "b".to_owned(),
                    conditions: vec![open()],
                    ..ListenerStatus::default()
                },
            ],
            ..ListenerSetStatus::default()
        };
        let mut report = report();
        for (refused, expected) in [("a", ConditionStatus::True), ("b", ConditionStatus::False)] {
            report
                .refused_listeners
                .insert(refused.to_owned(), "taken".to_owned());
            let mut status = set();
            program_listener_set(&mut status, &report);
            assert_eq!(status.conditions[0].status, expected, "{refused}");
            assert_eq!(status.listeners[0].conditions[0].message, "taken");
        }
        assert_eq!(
            {
                let mut status = set();
                program_listener_set(&mut status, &Programmed::default());
                status.conditions[0].status
            },
            ConditionStatus::Unknown
        );
    }

    #[test]
    fn gateway_without_listeners_is_programmed_for_sets() {
        let mut status = status();
        status.listeners.clear();
        program(&mut status, &report());
        assert_eq!(status.conditions[0].status, ConditionStatus::True);
    }
}
