//! What the hosts say about a Gateway, put into its status.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{
    Condition, ConditionStatus, ConditionType, GatewayStatus, GatewayStatusAddress, Reason,
};
use crate::api::AddressType;

/// What the hosts of one Gateway reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programmed {
    /// Where the Gateway is served: IPs or hostnames.
    pub addresses: Vec<String>,
    /// Hosts whose Envoy runs the wanted revision.
    pub hosts_ready: u32,
    /// All hosts of the Gateway.
    pub hosts: u32,
    /// Listeners that hosts could not open, by name, with the reason in words.
    pub refused_listeners: BTreeMap<String, String>,
    /// Addresses of the specification that no host has, with the reason in words.
    pub unusable_addresses: BTreeMap<String, String>,
}

/// Says in `status` what the hosts reported.
///
/// Only what resolution left Unknown is decided here: a Gateway or listener that is invalid stays so.
pub fn program(status: &mut GatewayStatus, programmed: &Programmed) {
    let Programmed {
        addresses,
        hosts_ready,
        hosts,
        refused_listeners,
        unusable_addresses,
    } = programmed;
    let progress = format!("programmed on {hosts_ready} of {hosts} hosts");
    let served = *hosts_ready > 0;
    let mut open_listeners = 0_usize;

    for listener in &mut status.listeners {
        let Some(condition) = pending(&mut listener.conditions) else {
            continue;
        };
        if let Some(why) = refused_listeners.get(&listener.name) {
            set(condition, ConditionStatus::False, Reason::Invalid, why);
        } else if served {
            open_listeners += 1;
            set(
                condition,
                ConditionStatus::True,
                Reason::Programmed,
                &progress,
            );
        } else {
            wait(condition, *hosts, &progress);
        }
    }

    let Some(condition) = pending(&mut status.conditions) else {
        // One address can never be used; where the others are is still worth saying.
        let in_part = status.conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Programmed
                && condition.reason == Reason::AddressNotUsable
        });
        if in_part && served {
            status.addresses = addresses.iter().map(|a| status_address(a)).collect();
        }
        return;
    };
    if !served {
        wait(condition, *hosts, &progress);
    } else if !unusable_addresses.is_empty() {
        let why: Vec<String> = unusable_addresses
            .iter()
            .map(|(address, why)| format!("spec.addresses {address:?} cannot be used: {why}"))
            .collect();
        set(
            condition,
            ConditionStatus::False,
            Reason::AddressNotUsable,
            &why.join("; "),
        );
    } else if addresses.is_empty() {
        let message = format!("{progress}, but no host reported an address");
        set(
            condition,
            ConditionStatus::False,
            Reason::AddressNotAssigned,
            &message,
        );
    } else if open_listeners == 0 {
        let message = format!("{progress}, but every listener was refused; see status.listeners");
        set(condition, ConditionStatus::False, Reason::Invalid, &message);
    } else if refused_listeners.is_empty() {
        set(
            condition,
            ConditionStatus::True,
            Reason::Programmed,
            &progress,
        );
    } else {
        let names: Vec<&str> = refused_listeners.keys().map(String::as_str).collect();
        let message = format!("{progress}, without listeners {}", names.join(", "));
        set(
            condition,
            ConditionStatus::True,
            Reason::Programmed,
            &message,
        );
    }

    status.addresses = addresses.iter().map(|a| status_address(a)).collect();
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

/// The Programmed condition, if it is still open.
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

/// No host is ready: Unknown while there is none, False while there are some.
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
    fn ready_hosts_program_what_is_valid_and_only_that() {
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
    fn a_gateway_with_an_impossible_address_still_says_where_it_is() {
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
    fn a_refused_listener_says_why_and_an_unusable_address_fails_the_gateway() {
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
}
