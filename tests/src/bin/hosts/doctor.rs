//! Tests `sesame-agent doctor` on a serving host. Findings must be correct for root and the agent's
//! user, and remedies must work.

use serde_json::Value;

use crate::inside::Inside;

const AS_USER: [&str; 4] = ["runuser", "--user", "sesame", "--"];
const DOCTOR: [&str; 5] = ["sesame-agent", "doctor", "--all", "--output", "json"];
const MIGRATION: &str = "/proc/sys/net/ipv4/tcp_migrate_req";

pub(crate) struct Diagnosis(Value);

impl Diagnosis {
    pub(crate) fn by_root(inside: &Inside) -> Self {
        Self::run(inside, &DOCTOR)
    }

    pub(crate) fn by_user(inside: &Inside) -> Self {
        Self::run(inside, &[&AS_USER[..], &DOCTOR].concat())
    }

    fn run(inside: &Inside, command: &[&str]) -> Self {
        let output = inside.run(command);
        let examination = serde_json::from_slice(&output.stdout);
        let examination: Value = examination.unwrap_or_else(|error| {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            panic!("{command:?}: {error}\n{stderr}")
        });
        let healthy = examination["healthy"] == true;
        assert_eq!(
            output.status.success(),
            healthy,
            "the exit code matches `healthy`"
        );
        Self(examination)
    }

    fn follow(&self, inside: &Inside, check: &str) {
        let all = self.0["findings"].as_array().expect("findings");
        let finding = all.iter().find(|finding| finding["check"] == check);
        let remedy = finding.and_then(|finding| finding["remedy"].as_str());
        inside.ok(&["sh", "-c", remedy.expect("a remedy")]);
    }

    fn found(&self, check: &str, weight: &str) -> Vec<&Value> {
        let all = self.0["findings"].as_array().expect("findings");
        all.iter()
            .filter(|finding| finding["check"] == check && finding["severity"] == weight)
            .collect()
    }

    pub(crate) fn assert_found(&self, check: &str, weight: &str, word: &str) {
        let found = self.found(check, weight);
        let has = found
            .iter()
            .any(|finding| finding.to_string().contains(word));
        assert!(
            has,
            "no {weight} finding of {check} contains {word:?}: {:#}",
            self.0
        );
    }

    pub(crate) fn assert_fit(&self, except: &[&str]) {
        let all = self.0["findings"].as_array().expect("findings");
        let bad: Vec<&Value> = all
            .iter()
            .filter(|finding| finding["severity"] == "error" || finding["severity"] == "warning")
            .filter(|finding| !except.iter().any(|check| finding["check"] == *check))
            .collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}

/// The machine under test shares its clock and limits with the real machine.
pub(crate) const SHARED_CHECKS: [&str; 5] = [
    "clock",
    "port-steering",
    "inotify-instances",
    "inotify-watches",
    "open-files",
];

/// Breaks things that one command can repair, and runs the doctor's remedies.
pub(crate) fn examine(inside: &Inside, ports: &str) {
    for examined in [Diagnosis::by_root(inside), Diagnosis::by_user(inside)] {
        examined.assert_fit(&SHARED_CHECKS);
        examined.assert_found("agent", "ok", "reports no problems");
        examined.assert_found("settings", "ok", "/etc/sesame/agent.yaml is valid");
        examined.assert_found("directories", "ok", "owners and modes are correct");
        examined.assert_found("ports", "ok", ports);
        examined.assert_found("low-ports", "ok", "all ports may be opened");
        examined.assert_found("tcp-migrate-req", "ok", "is 1");
        for unit in [
            "sesame-agent.service",
            "sesame-envoy.service",
            "sesame.target",
        ] {
            examined.assert_found("units", "ok", &format!("{unit} is active"));
        }
    }
    let stored = inside.ok(&[
        "sh",
        "-c",
        "find /var/lib/sesame -type f | sort | head -n 1",
    ]);
    let stored = stored.trim();
    inside.ok(&["chmod", "644", stored]);
    let sysctl = |value: &str| inside.ok(&["sh", "-c", &format!("echo {value} >{MIGRATION}")]);
    sysctl("0");
    let broken = Diagnosis::by_root(inside);
    broken.assert_found("modes", "error", &format!("{stored} has mode 0644"));
    broken.assert_found("tcp-migrate-req", "warning", "is 0");
    broken.follow(inside, "modes");
    broken.follow(inside, "tcp-migrate-req");
    Diagnosis::by_root(inside).assert_fit(&SHARED_CHECKS);
    assert_eq!(
        inside.ok(&["stat", "--format=%a %U", stored]).trim(),
        "600 sesame"
    );
    assert_eq!(inside.ok(&["cat", MIGRATION]).trim(), "1");
}
