//! `sesame-agent certs`: lists this host's certificates and trust bundles by expiry time.

use std::path::Path;

use anyhow::bail;
use clap::Args;
use comfy_table::{Table, presets};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use super::EXIT_FAULT;
use super::agent::{self, AgentArgs};
use super::history::StateArgs;
use sesame_engine::certificates::{
    CERTIFICATES_PATH, CertificateReport, CertificateRole, of_accepted,
};
use sesame_engine::inspect;

const SERIAL: usize = 16;
const FEW: usize = 3;
const DAY: i64 = 24 * 60 * 60;

/// Lists certificates by expiry: the leaf and chain of each key pair, and each CA certificate in
/// trust bundles. Never shows private keys. With --check, the exit code is 1 if a certificate has
/// expired or will expire within that time, else 0.
#[derive(Debug, Args)]
pub(crate) struct CertsArgs {
    /// Show only certificates that have expired or will expire within this time (14d, 36h, "2w
    /// 3d"), and exit with 1 if there are any.
    #[arg(long, value_name = "TIME", value_parser = time)]
    check: Option<SignedDuration>,
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) fn main(agent: &AgentArgs, args: &CertsArgs) -> anyhow::Result<u8> {
    let CertsArgs { check, state } = args;
    let mut certificates = read(agent, state)?;
    if let Some(gateway) = agent.gateway.as_ref().map(ToString::to_string) {
        certificates.retain(|it| it.gateway == gateway);
    }
    let now = Timestamp::now();
    if let Some(within) = check {
        certificates.retain(|it| expires_within(it, now, *within));
    }
    agent.output.write(&certificates, || match check {
        Some(_) if certificates.is_empty() => {
            "no certificate expires within that time\n".to_owned()
        }
        _ if certificates.is_empty() => "no certificates\n".to_owned(),
        _ => table(&certificates, now),
    })?;
    let wrong = check.is_some() && !certificates.is_empty();
    Ok(if wrong { EXIT_FAULT } else { 0 })
}

fn read(agent: &AgentArgs, state: &StateArgs) -> anyhow::Result<Vec<CertificateReport>> {
    let offline = |directory: &Path| {
        // If the directory name is mistyped, fail instead of reporting that no certificate expires.
        if !directory.is_dir() {
            bail!("{}: no such directory", directory.display());
        }
        Ok(of_accepted(&inspect::accepted(directory)))
    };
    if let Some(directory) = state.without_asking(agent) {
        return offline(directory);
    }
    let socket = agent.socket();
    if let Some(answer) = agent::ask(&socket, CERTIFICATES_PATH)? {
        return agent::parse(&socket, &answer);
    }
    match agent.state_of_host().filter(|directory| directory.is_dir()) {
        Some(directory) => offline(directory),
        None => bail!(
            "{}; or read its stored configuration with --state-dir",
            agent::not_running(&socket)
        ),
    }
}

/// Parses a duration such as `14d`, `36h` or `2w 3d`. A day always has 24 hours.
fn time(text: &str) -> Result<SignedDuration, String> {
    let expected =
        || format!("invalid time {text:?}; expected a value such as 14d, 36h or \"2w 3d\"");
    let span: Span = text.parse().map_err(|_| expected())?;
    let time = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| expected())?;
    if time.is_negative() {
        return Err(expected());
    }
    Ok(time)
}

fn expires_within(certificate: &CertificateReport, now: Timestamp, within: SignedDuration) -> bool {
    certificate.not_after.duration_since(now) <= within
}

fn table(certificates: &[CertificateReport], now: Timestamp) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "EXPIRES", "", "FOR", "ISSUER", "SERIAL", "KEY", "FROM", "GATEWAY", "ENVOY", "USED BY",
    ]);
    for certificate in certificates {
        let CertificateReport {
            gateway,
            object,
            file,
            role,
            names,
            subject,
            issuer,
            serial,
            key,
            not_before: _,
            not_after,
            trusted_until,
            used_by,
            served,
        } = certificate;
        let mut of = few(names);
        if names.is_empty() || *role != CertificateRole::Leaf {
            of.clone_from(subject);
        }
        let from = match file {
            Some(file) => format!("{object} ({file})"),
            None => object.clone(),
        };
        let served = match (served, role, trusted_until) {
            (.., Some(until)) => format!(
                "(authority until {})",
                until.strftime("%Y-%m-%d %H:%M:%S UTC")
            ),
            (Some(true), ..) => "serves it".to_owned(),
            (Some(false), ..) => "does not serve it".to_owned(),
            (None, CertificateRole::Leaf, None) => "unknown".to_owned(),
            (None, CertificateRole::Chain, None) => "(chain)".to_owned(),
            (None, CertificateRole::Authority, None) => "(authority)".to_owned(),
        };
        table.add_row([
            not_after.strftime("%Y-%m-%d").to_string(),
            left(*not_after, now),
            of,
            issuer.clone(),
            serial.chars().take(SERIAL).collect(),
            key.clone(),
            from,
            gateway.clone(),
            served,
            few(used_by),
        ]);
    }
    format!("{table}\n")
}

fn left(end: Timestamp, now: Timestamp) -> String {
    let seconds = end.duration_since(now).as_secs();
    let days = seconds.abs() / DAY;
    let many = if days == 1 { "day" } else { "days" };
    match seconds {
        ..0 => format!("expired {days} {many} ago"),
        0..DAY => "expires within a day".to_owned(),
        _ => format!("in {days} {many}"),
    }
}

fn few(list: &[String]) -> String {
    let shown: Vec<&str> = list.iter().take(FEW).map(String::as_str).collect();
    match list.len().saturating_sub(FEW) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(not_after: Timestamp) -> CertificateReport {
        CertificateReport {
            gateway: "ns/gw".to_owned(),
            object: "Secret/ns/a".to_owned(),
            file: Some("a.yaml".to_owned()),
            role: CertificateRole::Leaf,
            names: ["a.test", "b.test", "c.test", "d.test"]
                .map(str::to_owned)
                .to_vec(),
            subject: "CN=a".to_owned(),
            issuer: "CN=ca".to_owned(),
            serial: "0123456789abcdef0123".to_owned(),
            key: "RSA 2048".to_owned(),
            not_before: Timestamp::UNIX_EPOCH,
            not_after,
            trusted_until: None,
            used_by: vec!["Gateway/ns/gw/listeners/https".to_owned()],
            served: Some(true),
        }
    }

    #[test]
    fn times_are_written_as_people_do() {
        let hours = SignedDuration::from_hours;
        for (text, expected) in [
            ("14d", Some(hours(14 * 24))),
            ("36h", Some(hours(36))),
            ("2w 3d", Some(hours(17 * 24))),
            ("0s", Some(hours(0))),
            ("14", None),
            ("soon", None),
            ("-1d", None),
            ("1mo", None),
            ("", None),
        ] {
            assert_eq!(time(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn expired_and_soon_expiring_certificates_are_found() {
        let now = Timestamp::from_second(1_000_000_000).expect("a time");
        let at = |seconds: i64| certificate(now + SignedDuration::from_secs(seconds));
        for (left, found, words) in [
            (-1, true, "expired 0 days ago"),
            (-2 * DAY, true, "expired 2 days ago"),
            (60, true, "expires within a day"),
            (14 * DAY, true, "in 14 days"),
            (14 * DAY + 1, false, "in 14 days"),
        ] {
            let certificate = at(left);
            let within = SignedDuration::from_hours(14 * 24);
            assert_eq!(expires_within(&certificate, now, within), found, "{left}");
            let text = table(&[certificate], now);
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = table(&[at(DAY)], now);
        for part in [
            "2001-09-10",
            "in 1 day",
            "a.test, b.test, c.test and 1 more",
            "Secret/ns/a (a.yaml)",
            "0123456789abcdef ",
            "serves it",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
