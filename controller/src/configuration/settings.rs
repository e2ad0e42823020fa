//! Derives the controller's settings from the configuration, flags and environment variables.

use std::sync::Arc;
use std::time::Duration;

use sesame_kinds::api::{
    FleetImages, FleetSettings, GatewaySelection, HostRules, NamespacedName, Publishing,
    SelectionMode, SesameConfiguration, SesameConfigurationSpec,
};
use sesame_proto::network::Network;
use sesame_resolver::settings::check;
use sesame_resolver::{Options, ResolvedFor};

const LOST_AFTER: Duration = Duration::from_secs(180);
/// Routes get the memory divided by this number, because an update holds several copies of them:
/// resolved, encoded and previous.
const ROUTE_MEMORY_DIVISOR: u64 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SelectionRule {
    Multiple,
    Single,
    Only(NamespacedName),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControllerSettings {
    pub(crate) options: Options,
    pub(crate) selection: SelectionRule,
    /// Each host may also serve at its Node's addresses.
    pub(crate) host_addresses: Vec<Network>,
    pub(crate) host_lost: Duration,
}

impl ControllerSettings {
    /// Returns true if Ingresses and HTTPProxies are served without a Gateway object.
    pub(crate) fn implies_gateway(&self) -> bool {
        let own = self.options.configuration.as_ref();
        let ingress = own.and_then(|it| it.spec.ingress.as_ref());
        ingress.is_some_and(|it| it.listeners.is_some())
    }
}

/// `flags` override the configuration, except for images. `memory_mib` limits all Gateways' routes.
pub(crate) fn settings(
    flags: &SesameConfigurationSpec,
    configuration: Option<&SesameConfiguration>,
    memory_mib: u64,
) -> Result<ControllerSettings, String> {
    let mut whole = configuration.cloned().unwrap_or_default();
    let mut faults = check::faults(&whole);
    let flag_configuration = SesameConfiguration {
        spec: flags.clone(),
        ..SesameConfiguration::default()
    };
    faults.extend(check::faults(&flag_configuration));
    if !faults.is_empty() {
        return Err(faults.join("; "));
    }
    apply_flags(flags, &mut whole.spec);
    let GatewaySelection {
        controller_name,
        mode,
        gateway_ref,
        allow_local_endpoints,
        extra_minimal_ocg,
    } = whole.spec.gateway.clone().unwrap_or_default();
    let HostRules {
        addresses,
        lost_after,
    } = whole.spec.hosts.clone().unwrap_or_default();
    let defaults = Options::default();
    let lost_after = lost_after.as_deref().and_then(check::milliseconds);
    let networks = addresses.unwrap_or_default();
    Ok(ControllerSettings {
        selection: match (gateway_ref, mode) {
            (Some(only), _) => {
                SelectionRule::Only(NamespacedName::new(&only.namespace, &only.name))
            }
            (None, Some(SelectionMode::Single)) => SelectionRule::Single,
            (None, _) => SelectionRule::Multiple,
        },
        host_addresses: networks.iter().filter_map(|it| it.parse().ok()).collect(),
        host_lost: lost_after.map_or(LOST_AFTER, Duration::from_millis),
        options: Options {
            controller_name: controller_name.unwrap_or(defaults.controller_name),
            allow_local_endpoints: allow_local_endpoints.unwrap_or(false),
            extra_minimal_ocg: extra_minimal_ocg.unwrap_or(false),
            resolved_for: ResolvedFor::Cluster,
            max_route_bytes: memory_mib.saturating_mul(1 << 20) / ROUTE_MEMORY_DIVISOR,
            preview: false,
            implied_gateway: true,
            namespace: defaults.namespace,
            configuration: Some(Arc::new(whole)),
            salt_key: None,
            has_acme_dns_hook: false,
        },
    })
}

fn apply_flags(flags: &SesameConfigurationSpec, spec: &mut SesameConfigurationSpec) {
    let SesameConfigurationSpec {
        gateway,
        hosts,
        publishing,
        fleet,
        ingress: _,
        ports: _,
        edge: _,
        edge_ports: _,
        rollout: _,
        rotation: _,
        access_log: _,
        tracing: _,
        metrics: _,
        acme: _,
    } = flags;
    if let Some(GatewaySelection {
        controller_name,
        mode,
        gateway_ref,
        allow_local_endpoints,
        // No flag exists for this field.
        extra_minimal_ocg: _,
    }) = gateway
    {
        let under = spec.gateway.get_or_insert_default();
        override_if_set(controller_name.as_ref(), &mut under.controller_name);
        override_if_set(mode.as_ref(), &mut under.mode);
        // A mode flag also overrides the configuration's `gatewayRef`.
        if mode.is_some() || gateway_ref.is_some() {
            under.gateway_ref.clone_from(gateway_ref);
        }
        override_if_set(
            allow_local_endpoints.as_ref(),
            &mut under.allow_local_endpoints,
        );
    }
    if let Some(HostRules {
        addresses,
        lost_after,
    }) = hosts
    {
        let under = spec.hosts.get_or_insert_default();
        override_if_set(addresses.as_ref(), &mut under.addresses);
        override_if_set(lost_after.as_ref(), &mut under.lost_after);
    }
    let images = fleet.as_ref().and_then(|fleet| fleet.images.as_ref());
    if let Some(FleetImages { agent, envoy }) = images {
        let FleetSettings { images: under, .. } = spec.fleet.get_or_insert_default();
        let under = under.get_or_insert_default();
        // These flags are only defaults: images in the configuration take precedence.
        for (image, under) in [(agent, &mut under.agent), (envoy, &mut under.envoy)] {
            *under = under.take().or_else(|| image.clone());
        }
    }
    if let Some(Publishing { type_, .. }) = publishing {
        override_if_set(
            type_.as_ref(),
            &mut spec.publishing.get_or_insert_default().type_,
        );
    }
}

fn override_if_set<T: Clone>(over: Option<&T>, under: &mut Option<T>) {
    if over.is_some() {
        *under = over.cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_kinds::api::{GatewayRef, PublishingType};

    fn selection(name: Option<&str>, mode: Option<SelectionMode>) -> GatewaySelection {
        GatewaySelection {
            controller_name: name.map(str::to_owned),
            mode,
            ..GatewaySelection::default()
        }
    }

    #[test]
    fn flags_override_fields_and_defaults_fill_rest() {
        let configuration = SesameConfiguration {
            spec: SesameConfigurationSpec {
                gateway: Some(GatewaySelection {
                    gateway_ref: Some(GatewayRef {
                        namespace: "web".to_owned(),
                        name: "edge".to_owned(),
                    }),
                    ..selection(Some("example.com/a"), Some(SelectionMode::Single))
                }),
                hosts: Some(HostRules {
                    addresses: Some(vec!["192.0.2.0/24".to_owned()]),
                    lost_after: Some("5m".to_owned()),
                }),
                ..SesameConfigurationSpec::default()
            },
            ..SesameConfiguration::default()
        };
        let plain = settings(
            &SesameConfigurationSpec::default(),
            Some(&configuration),
            512,
        );
        let plain = plain.expect("settings");
        assert_eq!(
            plain.selection,
            SelectionRule::Only(NamespacedName::new("web", "edge"))
        );
        assert_eq!(plain.host_lost, Duration::from_secs(300));
        assert_eq!(plain.host_addresses.len(), 1);
        assert_eq!(plain.options.max_route_bytes, 128 << 20);
        let flags = SesameConfigurationSpec {
            gateway: Some(selection(None, Some(SelectionMode::Multiple))),
            publishing: Some(Publishing {
                type_: Some(PublishingType::None),
                ..Publishing::default()
            }),
            ..SesameConfigurationSpec::default()
        };
        let over = settings(&flags, Some(&configuration), 512).expect("settings");
        assert_eq!(over.options.controller_name, "example.com/a");
        assert_eq!(over.selection, SelectionRule::Multiple);
        let publishing = &over.options.configuration.expect("one").spec.publishing;
        let type_ = publishing.as_ref().and_then(|it| it.type_.clone());
        assert_eq!(type_, Some(PublishingType::None));
        let none = settings(&SesameConfigurationSpec::default(), None, 512).expect("settings");
        assert_eq!(none.host_lost, LOST_AFTER);
        assert_eq!(
            none.options.controller_name,
            Options::default().controller_name
        );
    }

    #[test]
    fn image_flags_apply_unless_configuration_sets_them() {
        let fleet = |agent: Option<&str>, envoy: Option<&str>| SesameConfigurationSpec {
            fleet: Some(FleetSettings {
                images: Some(FleetImages {
                    agent: agent.map(str::to_owned),
                    envoy: envoy.map(str::to_owned),
                }),
                ..FleetSettings::default()
            }),
            ..SesameConfigurationSpec::default()
        };
        let configuration = SesameConfiguration {
            spec: fleet(Some("agent:2"), None),
            ..SesameConfiguration::default()
        };
        let flags = fleet(Some("agent:1"), Some("envoy:1"));
        let made = settings(&flags, Some(&configuration), 512).expect("settings");
        let made = made.options.configuration.expect("one").spec.fleet.clone();
        let expected = fleet(Some("agent:2"), Some("envoy:1")).fleet;
        assert_eq!(made, expected);
    }

    #[test]
    fn invalid_flags_and_fields_are_both_reported() {
        let flags = SesameConfigurationSpec {
            gateway: Some(selection(Some("ours"), None)),
            ..SesameConfigurationSpec::default()
        };
        let configuration = SesameConfiguration {
            spec: SesameConfigurationSpec {
                hosts: Some(HostRules {
                    lost_after: Some("60s".to_owned()),
                    ..HostRules::default()
                }),
                ..SesameConfigurationSpec::default()
            },
            ..SesameConfiguration::default()
        };
        let why = settings(&flags, Some(&configuration), 512).expect_err("both values are invalid");
        assert!(why.contains("example.com/controller"), "{why}");
        assert!(why.contains("spec.hosts.lostAfter: \"60s\""), "{why}");
    }
}
