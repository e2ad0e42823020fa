//! Gathers the archive's contents. No other module of `collect` inspects the host.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sesame_proto::keys::KeyPair;
use sesame_proto::salts::without_salt;

use super::ReportPart;
use crate::doctor::systemd::output;
use sesame_engine::inspect::InspectedGateway;
use sesame_envoy::Admin;
use sesame_envoy::log::ENVOY_LOG;
use sesame_host::entries;

const LOG_TAIL: u64 = 1 << 20;
const MAX_SECRET: u64 = 256 << 10;
const ANSWER: Duration = Duration::from_secs(20);
/// Files in the archive and their admin endpoints. Envoy omits private keys from its responses.
const ADMIN: [(&str, &str); 6] = [
    ("certs.json", "/certs"),
    ("clusters.txt", "/clusters"),
    ("config_dump.json", "/config_dump?include_eds"),
    ("listeners.txt", "/listeners"),
    ("server_info.json", "/server_info"),
    ("stats.txt", "/stats?usedonly"),
];
const KERNEL: [&str; 12] = [
    "/etc/os-release",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/sockstat",
    "/proc/self/cgroup",
    "/proc/self/limits",
    "/proc/sys/fs/inotify/max_user_instances",
    "/proc/sys/fs/inotify/max_user_watches",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/ip_unprivileged_port_start",
    "/proc/sys/net/ipv4/tcp_migrate_req",
    "/proc/version",
];

pub(crate) fn host() -> Vec<ReportPart> {
    let mut parts: Vec<ReportPart> = KERNEL
        .iter()
        .map(|path| ReportPart::new(format!("host{path}"), fs::read_to_string(path)))
        .collect();
    // Collect only the names, because the values may be secrets.
    let mut names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    let names = Ok::<_, String>(names.join("\n") + "\n");
    parts.push(ReportPart::new("host/variables.txt", names));
    let journal = output(
        "journalctl",
        &[
            "--no-pager",
            "-o",
            "short-iso",
            "-n",
            "5000",
            "-u",
            "sesame-agent",
            "-u",
            "sesame-envoy",
        ],
    );
    let journal = journal.ok_or("no readable journal");
    parts.push(ReportPart::new("host/journal.txt", journal));
    parts
}

/// Snapshots contain digests of private keys, not the keys.
pub(crate) fn snapshots(gateways: &[InspectedGateway]) -> Vec<ReportPart> {
    let parts = gateways.iter().map(|gateway| {
        let value = sesame_proto::json::to_value(&gateway.resolved.snapshot);
        let gateway = &gateway.gateway;
        let name = format!(
            "gateways/{}.{}/snapshot.json",
            gateway.namespace, gateway.name
        );
        ReportPart::new(name, serde_json::to_string_pretty(&value))
    });
    parts.collect()
}

pub(crate) async fn envoys(runtime_dir: &Path) -> Vec<ReportPart> {
    let mut parts = Vec::new();
    let directories = match entries(&runtime_dir.join("gateways")) {
        Ok(directories) => directories,
        Err(error) => {
            return vec![ReportPart::new("envoys", Err(error))];
        }
    };
    for directory in directories {
        let name = directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let admin = Admin::new(directory.join("admin.sock")).with_timeout(ANSWER);
        for (file, path) in ADMIN {
            let answer = admin.get(path).await;
            let text = answer.map(|body| String::from_utf8_lossy(&body).into_owned());
            parts.push(ReportPart::new(format!("envoys/{name}/{file}"), text));
        }
        let log = tail(&directory.join(ENVOY_LOG));
        parts.push(ReportPart::new(format!("envoys/{name}/{ENVOY_LOG}"), log));
        let files = Ok::<_, String>(listing(&directory));
        parts.push(ReportPart::new(format!("envoys/{name}/files.txt"), files));
    }
    parts
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(LOG_TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn listing(directory: &Path) -> String {
    let mut lines = Vec::new();
    let mut paths = entries(directory).unwrap_or_default();
    let below: Vec<PathBuf> = paths
        .iter()
        .filter_map(|path| entries(path).ok())
        .flatten()
        .collect();
    paths.extend(below);
    paths.sort();
    for path in paths {
        let size = fs::symlink_metadata(&path).map_or(0, |meta| meta.len());
        let name = path.strip_prefix(directory).unwrap_or(&path);
        lines.push(format!("{size:>10} {}", name.display()));
    }
    lines.join("\n") + "\n"
}

/// Returns keys, tokens and passwords that the parts might contain. This includes the token in each
/// of `files`.
pub(crate) fn secrets(
    gateways: &[InspectedGateway],
    kubeconfig: Option<&Path>,
    files: &[PathBuf],
) -> Vec<Vec<u8>> {
    let keys = gateways.iter().flat_map(|gateway| &gateway.resolved.keys);
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    for KeyPair { private_key, .. } in keys {
        // Credentials are stored as `name:value`, but other parts may contain only the value.
        let credentials = String::from_utf8_lossy(private_key);
        let lines = credentials.lines().filter_map(|line| line.split_once(':'));
        secrets.extend(lines.map(|(_, value)| value.as_bytes().to_vec()));
        secrets.push(without_salt(&credentials).as_bytes().to_vec());
        secrets.push(private_key.clone());
    }
    let named = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy().to_uppercase();
        ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"]
            .iter()
            .any(|word| name.contains(word))
            && !name.ends_with("_DIRECTORY")
    });
    secrets.extend(named.map(|(_, value)| value.to_string_lossy().into_owned().into_bytes()));
    let mut files = files.to_vec();
    files.push("/var/run/secrets/kubernetes.io/serviceaccount/token".into());
    if let Some(directory) = std::env::var_os("CREDENTIALS_DIRECTORY") {
        files.extend(entries(Path::new(&directory)).unwrap_or_default());
    }
    secrets.extend(files.iter().filter_map(|path| read(path)));
    let kubeconfig = kubeconfig.and_then(read).unwrap_or_default();
    for line in String::from_utf8_lossy(&kubeconfig).lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim().trim_matches(['"', '\'']);
        match key.trim().trim_start_matches("- ").trim_matches('"') {
            "token" | "password" | "client-key-data" => secrets.push(value.as_bytes().to_vec()),
            "tokenFile" | "client-key" => secrets.extend(read(Path::new(value))),
            _ => {}
        }
    }
    secrets
}

pub(crate) fn header_file(path: Option<&Path>) -> Vec<Vec<u8>> {
    let text = path.and_then(read).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(_, value)| value.trim().as_bytes().to_vec())
        .collect()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(MAX_SECRET)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}
