//! Reads the networks of an AccessPolicy. Errors start with the field path relative to `spec`.

use sesame_proto::network::Network;
use sesame_proto::schema::{AddressFilter, AddressRange};

use crate::context::ResolveContext;
use crate::syntax::limits;
use sesame_kinds::api::{AddressSource, IpFilter, NetworkList};

const MAX_LISTS: usize = 8;
/// Maximum number of networks per `allow` or `deny` list, including networks from ConfigMaps.
const MAX_LISTED: usize = 2048;
const MAX_LIST_BYTES: usize = 128 * 1024;
const DEFAULT_LIST: &str = "networks";

pub(super) fn read_addresses(
    policy: &str,
    spec: &IpFilter,
    namespace: &str,
    cx: &ResolveContext<'_, '_>,
) -> Result<AddressFilter, String> {
    let IpFilter {
        allow,
        deny,
        allow_refs,
        deny_refs,
        source,
    } = spec;
    let lists = [allow.len(), deny.len(), allow_refs.len(), deny_refs.len()];
    if lists.iter().all(|it| *it == 0) {
        return Err(".ipFilter: expected allow, deny, allowRefs or denyRefs".to_owned());
    }
    let peer = match source {
        None | Some(AddressSource::Client) => false,
        Some(AddressSource::Peer) => true,
        Some(AddressSource::Other(other)) => {
            let known = AddressSource::WORDS.join(" or ");
            return Err(format!(
                ".ipFilter.source {other:?} is unknown; expected {known}"
            ));
        }
    };
    Ok(AddressFilter {
        name: policy.to_owned(),
        allow: with_lists((".ipFilter.allow", allow, allow_refs), peer, namespace, cx)?,
        deny: with_lists((".ipFilter.deny", deny, deny_refs), peer, namespace, cx)?,
    })
}

fn with_lists(
    (field, own, lists): (&str, &[String], &[NetworkList]),
    peer: bool,
    namespace: &str,
    cx: &ResolveContext<'_, '_>,
) -> Result<Vec<AddressRange>, String> {
    let mut all = read_networks(field, own, peer)?;
    limits::entries(&format!("{field}Refs"), lists.len(), 0..=MAX_LISTS)?;
    for (i, NetworkList { name, key }) in lists.iter().enumerate() {
        let at = format!("{field}Refs[{i}]: ConfigMap {namespace}/{name}");
        let key = key.as_deref().unwrap_or(DEFAULT_LIST);
        let text = cx.config_map_text(&at, (namespace, name), key)?;
        limits::max_bytes(&format!("{at}: {key:?}"), text, MAX_LIST_BYTES)?;
        let before = all.len();
        for (line, text) in text.lines().enumerate() {
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let network = Network::of_host_or_network(text);
            let network =
                network.map_err(|why| format!("{at}: {key:?}, line {}: {why}", line + 1))?;
            all.push(AddressRange {
                network: network.to_string(),
                peer,
            });
            limits::entries(field, all.len(), 0..=MAX_LISTED)?;
        }
        if all.len() == before {
            return Err(format!("{at}: {key:?} contains no networks"));
        }
    }
    Ok(all)
}

pub(crate) fn read_networks(
    field: &str,
    networks: &[String],
    peer: bool,
) -> Result<Vec<AddressRange>, String> {
    limits::entries(field, networks.len(), 0..=limits::MAX_NETWORKS)?;
    let networks = networks.iter().enumerate().map(|(i, text)| {
        let network = text.parse::<Network>();
        let network = network.map_err(|why| format!("{field}[{i}] {why}"))?;
        Ok::<_, String>(AddressRange {
            network: network.to_string(),
            peer,
        })
    });
    networks.collect()
}
