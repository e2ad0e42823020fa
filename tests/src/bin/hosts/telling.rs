//! Checks the integration with systemd: journal lines by Gateway, reloads, and credentials.

use std::fs;

use crate::inside::Inside;

const AGENT: &str = "sesame-agent.service";
const CREDENTIALS: &str = "/root/credentials.sh";

pub(crate) fn journal_and_reload(inside: &Inside) {
    inside.wait_for("the journal contains lines of the Gateway", |inside| {
        let lines = inside.output(&[
            "journalctl",
            "--no-pager",
            "--output=json",
            "--unit",
            AGENT,
            "SESAME_GATEWAY=default/edge",
        ]);
        let is_told = lines.contains("\"PRIORITY\":\"6\"") && lines.contains("default/edge");
        is_told.then_some(()).ok_or(lines)
    });
    let before = inside.main_pid(AGENT);
    inside.ok(&["systemctl", "reload", AGENT]);
    assert_eq!(inside.property(AGENT, "ActiveState"), "active");

    let settings = inside.path("/etc/sesame/agent.yaml");
    let good = fs::read_to_string(&settings).ok();
    fs::write(&settings, "no-such-setting: 1\n").expect("settings are written");
    let refused = inside.run(&["systemctl", "reload", AGENT]);
    assert!(!refused.status.success(), "invalid settings were accepted");
    inside.wait_for(
        "the unit's status reports the rejected settings",
        |inside| {
            let status = inside.property(AGENT, "StatusText");
            let is_said = status.contains("the settings were rejected");
            is_said.then_some(()).ok_or(status)
        },
    );
    match good {
        Some(text) => fs::write(&settings, text).expect("settings are written"),
        None => fs::remove_file(&settings).expect("settings are removed"),
    }
    inside.ok(&["systemctl", "reload", AGENT]);
    assert_eq!(inside.main_pid(AGENT), before, "a reload is no restart");
    assert_eq!(inside.property(AGENT, "ActiveState"), "active");
}

pub(crate) fn encrypted_credentials(inside: &Inside) {
    let script = "set -e; mkdir -p /run/systemd/system/sesame-agent.service.d\n\
        printf trusted >/root/plain\n\
        systemd-creds encrypt --with-key=host --name=trusted.pem /root/plain /etc/sesame/trusted.pem.cred\n\
        rm /root/plain\n\
        printf '[Service]\\nLoadCredentialEncrypted=trusted.pem:/etc/sesame/trusted.pem.cred\\n\
        ExecStartPre=/bin/grep -q trusted %%d/trusted.pem\\n' \
        >/run/systemd/system/sesame-agent.service.d/credentials.conf\n\
        systemctl daemon-reload; systemctl restart sesame-agent.service\n\
        rm -r /run/systemd/system/sesame-agent.service.d /etc/sesame/trusted.pem.cred\n\
        systemctl daemon-reload; systemctl restart sesame-agent.service\n";
    fs::write(inside.path(CREDENTIALS), script).expect("a script");
    inside.ok(&["sh", CREDENTIALS]);
}

/// `seal-key` must fail if the key exists.
pub(crate) fn sealing_key(inside: &Inside) {
    inside.ok(&["sesame-agent", "seal-key"]);
    let again = inside.run(&["sesame-agent", "seal-key"]);
    assert!(
        !again.status.success(),
        "`seal-key` replaced an existing key"
    );
    // As `systemctl edit` would.
    inside.ok(&["mkdir", "-p", "/etc/systemd/system/sesame-agent.service.d"]);
    inside.write(
        "/etc/systemd/system/sesame-agent.service.d/override.conf",
        "[Service]\nLoadCredentialEncrypted=sesame-seal-key\n",
    );
    inside.ok(&["systemctl", "daemon-reload"]);
    inside.ok(&["systemctl", "restart", AGENT]);
    inside.wait_for("the agent seals with its unit's key", |inside| {
        let status = inside.output(&["sesame-agent", "status", "--output", "json"]);
        let is_used = status.contains("\"keysAtRest\": \"a credential of systemd");
        is_used.then_some(()).ok_or(status)
    });
}
