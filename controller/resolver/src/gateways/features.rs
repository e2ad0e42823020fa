//! The features that Sesame supports, by their names in the conformance suite. The documentation
//! page is generated from this table.
//!
//! `supportedFeatures` lists a feature only if the installed CRD's release and channel define the
//! feature's fields and name.

use std::ops::RangeInclusive;

use sesame_kinds::world::{ApiRelease, DefinitionRelease, Definitions, Kind, ReleaseChannel};

pub(crate) const FIRST: u32 = 5;
pub(crate) const LAST: u32 = 7;

/// Minor releases of Gateway API v1, in one channel.
type Releases = RangeInclusive<u32>;

#[expect(clippy::reversed_empty_ranges, reason = "an intentionally empty range")]
const NEVER: Releases = 1..=0;

#[derive(Clone, Debug)]
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) standard: Releases,
    pub(crate) experimental: Releases,
}

const fn always(name: &'static str, kind: Kind) -> Feature {
    within(name, kind, FIRST..=LAST, FIRST..=LAST)
}

const fn since(minor: u32, name: &'static str, kind: Kind) -> Feature {
    within(name, kind, minor..=LAST, minor..=LAST)
}

const fn within(
    name: &'static str,
    kind: Kind,
    standard: Releases,
    experimental: Releases,
) -> Feature {
    Feature {
        name,
        kind,
        standard,
        experimental,
    }
}

/// Sorted by name. Never list an unsupported feature.
pub(crate) const FEATURES: &[Feature] = &[
    always("BackendTLSPolicy", Kind::BackendTlsPolicy),
    always("BackendTLSPolicySANValidation", Kind::BackendTlsPolicy),
    within(
        "ClusterTrustBundle",
        Kind::ClusterTrustBundle,
        NEVER,
        7..=LAST,
    ),
    always("GRPCRoute", Kind::GrpcRoute),
    always("GRPCRouteNamedRouteRule", Kind::GrpcRoute),
    since(7, "GRPCRouteRequestHeaderModifier", Kind::GrpcRoute),
    always("Gateway", Kind::Gateway),
    always("GatewayAddressEmpty", Kind::Gateway),
    always("GatewayBackendClientCertificate", Kind::Gateway),
    always("GatewayFrontendClientCertificateValidation", Kind::Gateway),
    always(
        "GatewayFrontendClientCertificateValidationInsecureFallback",
        Kind::Gateway,
    ),
    always("GatewayHTTPListenerIsolation", Kind::Gateway),
    always(
        "GatewayHTTPSListenerDetectMisdirectedRequests",
        Kind::Gateway,
    ),
    since(6, "GatewayInfrastructure", Kind::Gateway),
    within(
        "GatewayInfrastructurePropagation",
        Kind::Gateway,
        5..=5,
        5..=5,
    ),
    within("GatewayListenerFilters", Kind::Gateway, NEVER, 7..=LAST),
    always("GatewayPort8080", Kind::Gateway),
    since(
        7,
        "GatewayRouteHostnameIntersectionPrecedence",
        Kind::Gateway,
    ),
    always("GatewayStaticAddresses", Kind::Gateway),
    always("HTTPRoute", Kind::HttpRoute),
    always("HTTPRoute303RedirectStatusCode", Kind::HttpRoute),
    always("HTTPRoute307RedirectStatusCode", Kind::HttpRoute),
    always("HTTPRoute308RedirectStatusCode", Kind::HttpRoute),
    always("HTTPRouteBackendProtocolH2C", Kind::HttpRoute),
    always("HTTPRouteBackendProtocolWebSocket", Kind::HttpRoute),
    always("HTTPRouteBackendRequestHeaderModification", Kind::HttpRoute),
    always("HTTPRouteBackendTimeout", Kind::HttpRoute),
    since(7, "HTTPRouteBackendURLRewrite", Kind::HttpRoute),
    always("HTTPRouteCORS", Kind::HttpRoute),
    always("HTTPRouteDestinationPortMatching", Kind::HttpRoute),
    always("HTTPRouteHostRewrite", Kind::HttpRoute),
    always("HTTPRouteMethodMatching", Kind::HttpRoute),
    always("HTTPRouteNamedRouteRule", Kind::HttpRoute),
    always("HTTPRouteParentRefPort", Kind::HttpRoute),
    always("HTTPRoutePathRedirect", Kind::HttpRoute),
    always("HTTPRoutePathRewrite", Kind::HttpRoute),
    always("HTTPRoutePortRedirect", Kind::HttpRoute),
    always("HTTPRouteQueryParamMatching", Kind::HttpRoute),
    always("HTTPRouteRequestMirror", Kind::HttpRoute),
    always("HTTPRouteRequestMultipleMirrors", Kind::HttpRoute),
    always("HTTPRouteRequestPercentageMirror", Kind::HttpRoute),
    always("HTTPRouteRequestTimeout", Kind::HttpRoute),
    always("HTTPRouteResponseHeaderModification", Kind::HttpRoute),
    within("HTTPRouteRetry", Kind::HttpRoute, NEVER, 6..=6),
    within(
        "HTTPRouteRetryBackendTimeout",
        Kind::HttpRoute,
        NEVER,
        6..=6,
    ),
    since(7, "HTTPRouteRetryCodes", Kind::HttpRoute),
    within(
        "HTTPRouteRetryConnectionError",
        Kind::HttpRoute,
        7..=LAST,
        6..=LAST,
    ),
    always("HTTPRouteSchemeRedirect", Kind::HttpRoute),
    always("ListenerSet", Kind::ListenerSet),
    always("ReferenceGrant", Kind::ReferenceGrant),
    since(6, "TCPRoute", Kind::TcpRoute),
    always("TLSRoute", Kind::TlsRoute),
    always("TLSRouteModeMixed", Kind::TlsRoute),
    always("TLSRouteModeTerminate", Kind::TlsRoute),
    since(6, "UDPRoute", Kind::UdpRoute),
];

/// This feature's fields are in a Sesame CRD, so no Gateway API CRD is required.
const EXTRA_MINIMAL_OCG: &str = "GatewayExtraMinimalOCG";

/// Release that is assumed if no Gateway API CRDs are installed.
const OWN: (ApiRelease, ReleaseChannel) = (
    ApiRelease { major: 1, minor: 6 },
    ReleaseChannel::Experimental,
);

/// Returns the claimed features, sorted by name.
pub(crate) fn claimed(definitions: &Definitions, extra_minimal_ocg: bool) -> Vec<&'static str> {
    let is_claimed = move |feature: &&Feature| {
        let found = match definitions {
            Definitions::OwnTypes => Some(OWN),
            Definitions::Installed(all) => match all.get(&feature.kind) {
                Some(DefinitionRelease::Known(release, channel)) => Some((*release, *channel)),
                Some(DefinitionRelease::Unknown { .. }) | None => None,
            },
        };
        found.is_some_and(|(release, channel)| {
            let releases = match channel {
                ReleaseChannel::Standard => &feature.standard,
                ReleaseChannel::Experimental => &feature.experimental,
            };
            release.major == 1 && releases.contains(&release.minor)
        })
    };
    let features = FEATURES.iter().filter(is_claimed);
    let mut names: Vec<&str> = features.map(|feature| feature.name).collect();
    names.extend(extra_minimal_ocg.then_some(EXTRA_MINIMAL_OCG));
    names.sort_unstable();
    names
}

/// Returns a warning if a CRD has an unsupported release. Its objects are still served as far as
/// possible.
pub(crate) fn unsupported(definitions: &Definitions) -> Option<String> {
    let Definitions::Installed(all) = definitions else {
        return None;
    };
    let remarks = all.iter().filter_map(|(kind, release)| match release {
        DefinitionRelease::Known(ApiRelease { major: 1, minor }, _)
            if (FIRST..=LAST).contains(minor) =>
        {
            None
        }
        DefinitionRelease::Known(release, _) => Some(format!("{kind} is from {release}")),
        DefinitionRelease::Unknown { version, channel } => Some(format!(
            "{kind} has bundle-version {version:?} and channel {channel:?}"
        )),
    });
    let remarks: Vec<String> = remarks.collect();
    (!remarks.is_empty()).then(|| {
        format!(
            "definitions of Gateway API v1.{FIRST} to v1.{LAST} are supported, but {}; supported \
            fields are served",
            remarks.join(", ")
        )
    })
}

pub(crate) fn supported(definitions: &Definitions) -> String {
    let Definitions::Installed(all) = definitions else {
        return format!("Gateway API {} is supported", OWN.0);
    };
    let mut releases: Vec<(ApiRelease, ReleaseChannel)> = all
        .values()
        .filter_map(|release| match release {
            DefinitionRelease::Known(release, channel) => Some((*release, *channel)),
            DefinitionRelease::Unknown { .. } => None,
        })
        .collect();
    releases.sort_unstable();
    releases.dedup();
    let names: Vec<String> = releases
        .iter()
        .map(|(release, channel)| format!("{release} ({} channel)", channel.as_str()))
        .collect();
    format!("Gateway API {} is supported", names.join(" and "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use super::ReleaseChannel::{Experimental, Standard};
    use super::*;

    const START: &str = "<!-- features -->\n";

    fn installed(minor: u32, channel: ReleaseChannel) -> Definitions {
        let release = DefinitionRelease::Known(ApiRelease { major: 1, minor }, channel);
        let kinds = FEATURES.iter().map(|feature| feature.kind);
        Definitions::Installed(kinds.map(|kind| (kind, release.clone())).collect())
    }

    #[test]
    fn features_are_sorted_and_unique() {
        assert!(FEATURES.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn features_are_claimed_only_with_required_fields() {
        let claims =
            |definitions: &Definitions, name: &str| claimed(definitions, false).contains(&name);
        for (minor, channel, retry, connection_error, tcp) in [
            (5, Standard, false, false, false),
            (5, Experimental, false, false, false),
            (6, Standard, false, false, true),
            (6, Experimental, true, true, true),
            (7, Standard, false, true, true),
            (7, Experimental, false, true, true),
        ] {
            let definitions = installed(minor, channel);
            let found = [
                "HTTPRouteRetry",
                "HTTPRouteRetryConnectionError",
                "TCPRoute",
            ]
            .map(|name| claims(&definitions, name));
            assert_eq!(found, [retry, connection_error, tcp], "{definitions:?}");
            assert!(claims(&definitions, "HTTPRoute"));
            assert_eq!(unsupported(&definitions), None);
        }
        let Definitions::Installed(mut some) = installed(6, Standard) else {
            unreachable!("they are installed");
        };
        some.remove(&Kind::UdpRoute);
        assert!(!claims(&Definitions::Installed(some), "UDPRoute"));
    }

    #[test]
    fn other_releases_are_named() {
        let release =
            DefinitionRelease::Known(ApiRelease { major: 1, minor: 4 }, ReleaseChannel::Standard);
        let unknown = DefinitionRelease::Unknown {
            version: String::new(),
            channel: String::new(),
        };
        let all = BTreeMap::from([(Kind::Gateway, release), (Kind::HttpRoute, unknown)]);
        let why = unsupported(&Definitions::Installed(all)).expect("a reason");
        let expected = "v1.5 to v1.7 are supported, but Gateway is from v1.4, HTTPRoute has \
            bundle-version \"\"";
        assert!(why.contains(expected), "{why}");
    }

    #[test]
    fn features_page_is_current() {
        let releases = |range: &Releases| {
            if range.is_empty() {
                return "–".to_owned();
            }
            match (*range.start(), *range.end()) {
                (FIRST, LAST) => "all".to_owned(),
                (first, LAST) => format!("1.{first} and newer"),
                (first, last) if first == last => format!("1.{first}"),
                (first, last) => format!("1.{first} to 1.{last}"),
            }
        };
        let everywhere: Vec<String> = FEATURES
            .iter()
            .filter(|feature| releases(&feature.standard) == "all")
            .map(|feature| format!("`{}`", feature.name))
            .collect();
        let mut table = format!(
            "All releases, both channels: {}.\n\n\
             | feature | standard channel | experimental channel |\n|---|---|---|\n",
            everywhere.join(", ")
        );
        for Feature {
            name,
            standard,
            experimental,
            ..
        } in FEATURES
        {
            let (standard, experimental) = (releases(standard), releases(experimental));
            if standard == "all" {
                assert_eq!(experimental, "all", "{name}");
                continue;
            }
            writeln!(table, "| `{name}` | {standard} | {experimental} |").expect("memory");
        }
        sesame_kit::generated::check_end("docs/conformance/features.md", START, &table);
    }
}
