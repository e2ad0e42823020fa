//! Explains a route's backends: shares, endpoints and TLS.

use sesame_proto::schema::{
    AppProtocol, Backend, BackendTls, Snapshot, UrlRewrite, WeightedBackend,
};

use super::balancing;
use super::effects::{request_changes, response_changes};
use super::outcome::{ExplainedBackend, ExplainedFilter, ExplainedTls, Omitted};

/// Skips backends whose weight is 0. `refusal` is the response to requests in an invalid backend's
/// share.
pub(super) fn explained_backends(
    snapshot: &Snapshot,
    backends: &[WeightedBackend],
    refusal: &str,
    rewritten: impl Fn(&UrlRewrite) -> Option<ExplainedFilter>,
) -> Vec<ExplainedBackend> {
    let weighted = backends.iter().filter(|it| it.weight > 0);
    weighted
        .map(|it| explained_backend(snapshot, it, refusal, &rewritten))
        .collect()
}

pub(super) fn is_refused(snapshot: &Snapshot, backend: &WeightedBackend) -> bool {
    usable(snapshot, &backend.backend).is_err()
}

fn usable<'s>(snapshot: &'s Snapshot, name: &str) -> Result<&'s Backend, String> {
    if name.is_empty() {
        return Err("the reference is invalid".to_owned());
    }
    let found = snapshot.backends.iter().find(|it| it.name == name);
    let backend = found.ok_or_else(|| format!("{name} does not exist"))?;
    let Some(tls) = &backend.tls else {
        return Ok(backend);
    };
    let bundle = tls.trust_bundle.as_str();
    let key = tls.client_key.as_str();
    if explained_tls(tls).names.is_empty() && !tls.mesh {
        return Err("its TLS settings have no name to verify".to_owned());
    }
    if !bundle.is_empty() && !snapshot.trust_bundles.iter().any(|it| it.name == bundle) {
        return Err(format!("the CA certificates {bundle} are missing"));
    }
    if !key.is_empty() && !snapshot.keys.iter().any(|it| it.name == key) {
        return Err(format!("the client key {key} is missing"));
    }
    Ok(backend)
}

fn explained_backend(
    snapshot: &Snapshot,
    weighted: &WeightedBackend,
    refusal: &str,
    rewritten: impl Fn(&UrlRewrite) -> Option<ExplainedFilter>,
) -> ExplainedBackend {
    let WeightedBackend {
        backend: name,
        weight,
        request_headers,
        response_headers,
        rewrite,
    } = weighted;
    let changes = [
        request_changes(request_headers.as_deref(), None),
        rewrite.as_deref().and_then(rewritten),
        response_changes(response_headers.as_deref()),
    ];
    let explained = ExplainedBackend {
        backend: Some(name.clone()).filter(|name| !name.is_empty()),
        weight: *weight,
        refused: None,
        protocol: None,
        tls: None,
        balancing: None,
        endpoints: Vec::new(),
        fallback: None,
        filters: changes.into_iter().flatten().collect(),
        omitted: Omitted::default(),
    };
    match usable(snapshot, name) {
        Err(reason) => ExplainedBackend {
            refused: Some(format!("{refusal}: {reason}")),
            ..explained
        },
        Ok(backend) => ExplainedBackend {
            protocol: Some(protocol(backend.protocol()).to_owned()),
            tls: backend.tls.as_deref().map(explained_tls),
            balancing: balancing::explained(backend),
            endpoints: endpoints(snapshot, &backend.endpoints),
            fallback: Some(backend.fallback.clone()).filter(|name| !name.is_empty()),
            ..explained
        },
    }
}

fn endpoints(snapshot: &Snapshot, set: &str) -> Vec<String> {
    let found = snapshot.endpoints.iter().find(|it| it.name == set);
    let endpoints = found.map_or(&[][..], |set| set.endpoints.as_slice());
    endpoints
        .iter()
        .map(|it| {
            if it.address.contains(':') {
                format!("[{}]:{}", it.address, it.port)
            } else {
                format!("{}:{}", it.address, it.port)
            }
        })
        .collect()
}

fn protocol(protocol: AppProtocol) -> &'static str {
    match protocol {
        AppProtocol::Http1 | AppProtocol::Websocket => "HTTP/1.1",
        AppProtocol::Http2 => "HTTP/2",
        AppProtocol::TcpBytes => "TCP",
        AppProtocol::UdpDatagrams => "UDP",
    }
}

fn explained_tls(tls: &BackendTls) -> ExplainedTls {
    let BackendTls {
        sni,
        trust_bundle,
        dns_names,
        uris,
        client_key: _,
        dns_suffixes,
        uri_prefixes,
        mesh: _,
        min_version: _,
        max_version: _,
        cipher_suites: _,
        key_exchange_groups: _,
        unverified,
    } = tls;
    let suffixes = dns_suffixes.iter().map(|suffix| format!("*{suffix}"));
    let prefixes = uri_prefixes.iter().map(|prefix| format!("{prefix}*"));
    ExplainedTls {
        sni: sni.clone(),
        names: dns_names
            .iter()
            .chain(uris)
            .cloned()
            .chain(suffixes)
            .chain(prefixes)
            .collect(),
        authorities: trust_bundle.clone(),
        unverified: *unverified,
    }
}
