//! Determines the addresses of clients behind proxies.
//!
//! Filter chains distinguish proxies from other peers, because a connection manager that uses
//! detection extensions believes `x-forwarded-proto`, and does not append untrusted peers to
//! `x-forwarded-for`. Other peers have a connection manager that believes nothing.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::{
    CidrRange, TypedExtensionConfig, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as HeaderMutationFilter, Mutations,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use envoy_types::pb::envoy::extensions::http::original_ip_detection::custom_header::v3::CustomHeaderConfig;
use envoy_types::pb::envoy::extensions::http::original_ip_detection::xff::v3::{
    XffConfig, XffTrustedCidrs,
};
use envoy_types::util::pack_any;
use sesame_proto::schema::{ClientAddress, Port};

use crate::context::RenderContext;
use crate::{header_checks, l4, wrappers};

/// As in the resolver. Each costs time per request.
const MAX_NETWORKS: usize = 64;
const MAX_HOPS: u32 = 16;

/// How the connection manager of a filter chain determines addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClientAddresses<'a> {
    /// This many proxies append an address to `x-forwarded-for`. If there are fewer addresses, the
    /// client is the peer.
    Hops(u32),
    /// The last address in `x-forwarded-for` outside these networks.
    OutsideNetworks(&'a [CidrRange]),
    /// The address in this header, or the peer if the header is not a valid address.
    Header(&'a str),
}

/// The peers of a port: proxies, and all others.
#[derive(Debug, PartialEq)]
pub(crate) struct Peers<'a> {
    pub(crate) others: ClientAddresses<'a>,
    /// Empty without known proxies.
    pub(crate) proxies: Vec<CidrRange>,
    hops: u32,
    header: &'a str,
}

impl<'a> Peers<'a> {
    /// If it fails, use [`Self::none`], so that no header is believed.
    pub(crate) fn new(port: &'a Port, context: &RenderContext<'_>) -> Result<Self, String> {
        let believed_by_all = |hops| Self {
            others: ClientAddresses::Hops(hops),
            ..Self::none()
        };
        let Some(ClientAddress {
            networks,
            hops,
            header,
        }) = &port.client_address
        else {
            return Ok(believed_by_all(context.options.trusted_hops));
        };
        if *hops > MAX_HOPS || networks.len() > MAX_NETWORKS {
            return Err(format!(
                "client_address has {hops} hops and {} networks; expected at most {MAX_HOPS} and \
                 {MAX_NETWORKS}",
                networks.len()
            ));
        }
        if networks.is_empty() && header.is_empty() {
            return Ok(believed_by_all(*hops));
        }
        if networks.is_empty() || (!header.is_empty() && *hops > 0) {
            return Err("client_address has a header without networks, or with hops".to_owned());
        }
        if !header.is_empty() {
            header_checks::check_writable(header)
                .map_err(|why| format!("client_address header `{header}`: {why}"))?;
        }
        let networks = networks.iter().map(|it| l4::addresses::range(it));
        Ok(Self {
            proxies: networks.collect::<Result<_, _>>()?,
            hops: *hops,
            header,
            ..Self::none()
        })
    }

    pub(crate) fn none() -> Self {
        Self {
            others: ClientAddresses::Hops(0),
            proxies: Vec::new(),
            hops: 0,
            header: "",
        }
    }

    /// Returns `None` without known proxies.
    pub(crate) fn behind_proxies(&self) -> Option<ClientAddresses<'_>> {
        let Self {
            others: _,
            proxies,
            hops,
            header,
        } = self;
        if proxies.is_empty() {
            None
        } else if !header.is_empty() {
            Some(ClientAddresses::Header(header))
        } else if *hops > 0 {
            Some(ClientAddresses::Hops(*hops))
        } else {
            Some(ClientAddresses::OutsideNetworks(proxies))
        }
    }
}

impl ClientAddresses<'_> {
    pub(super) fn hops(self) -> u32 {
        match self {
            Self::Hops(hops) => hops,
            Self::OutsideNetworks(_) | Self::Header(_) => 0,
        }
    }

    /// Returns `None` if Envoy needs no extension.
    pub(super) fn detection(self) -> Option<TypedExtensionConfig> {
        match self {
            Self::Hops(_) => None,
            Self::OutsideNetworks(networks) => Some(wrappers::extension(
                "envoy.http.original_ip_detection.xff",
                pack_any(XffConfig {
                    xff_trusted_cidrs: Some(XffTrustedCidrs {
                        cidrs: networks.to_vec(),
                    }),
                    skip_xff_append: wrappers::boolean(false),
                    ..Default::default()
                }),
            )),
            Self::Header(name) => Some(wrappers::extension(
                "envoy.http.original_ip_detection.custom_header",
                pack_any(CustomHeaderConfig {
                    header_name: name.to_owned(),
                    ..Default::default()
                }),
            )),
        }
    }

    /// Sets the headers that Envoy sets only if it needs no extension.
    pub(super) fn http_filter(self) -> Option<HttpFilter> {
        let client = wrappers::header(
            "x-envoy-external-address",
            "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%".to_owned(),
            HeaderAppendAction::OverwriteIfExistsOrAdd,
        );
        let peer = wrappers::header(
            "x-forwarded-for",
            "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%".to_owned(),
            HeaderAppendAction::AppendIfExistsOrAdd,
        );
        let headers = match self {
            Self::Hops(_) => return None,
            Self::OutsideNetworks(_) => vec![client],
            Self::Header(_) => vec![client, peer],
        };
        let mutations = headers.into_iter().map(|header| HeaderMutation {
            action: Some(Action::Append(header)),
        });
        Some(HttpFilter {
            name: "client_address".to_owned(),
            config_type: Some(http_filter::ConfigType::TypedConfig(pack_any(
                HeaderMutationFilter {
                    mutations: Some(Mutations {
                        request_mutations: mutations.collect(),
                        ..Default::default()
                    }),
                    ..Default::default()
                },
            ))),
            ..Default::default()
        })
    }
}
