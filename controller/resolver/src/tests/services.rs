//! The Services that Gateways request from the controller.

use std::sync::Arc;

use sesame_proto::schema::Transport::{Tcp, Udp};

use super::{gateway, world};
use crate::{Options, Resolution, ServiceRequest, resolve};
use sesame_kinds::api::{
    FleetManagement, FleetSettings, FleetWorkload, NamespacedName, Publishing, PublishingType,
    SesameConfiguration, SesameConfigurationSpec,
};

fn published(type_: PublishingType, yaml: &str) -> Resolution {
    published_by(FleetSettings::default(), Some(type_), yaml)
}

fn published_by(fleet: FleetSettings, type_: Option<PublishingType>, yaml: &str) -> Resolution {
    let spec = SesameConfigurationSpec {
        publishing: Some(Publishing {
            type_,
            ..Publishing::default()
        }),
        fleet: Some(fleet),
        ..SesameConfigurationSpec::default()
    };
    let configuration = SesameConfiguration {
        spec,
        ..SesameConfiguration::default()
    };
    let options = Options {
        configuration: Some(Arc::new(configuration)),
        ..Options::default()
    };
    resolve(&world(yaml), &options)
}

fn request(resolution: &Resolution) -> &ServiceRequest {
    &resolution.services[&NamespacedName::new("web", "gw")]
}

#[test]
fn service_has_ports_of_all_accepted_listeners() {
    let listeners = "- {name: http, port: 80, protocol: HTTP}\n- {name: tls, port: 443, protocol: TLS, tls: {mode: \
                     Passthrough}}\n- {name: dns, port: 53, protocol: UDP}\n- {name: bad, port: 99, protocol: SMTP}";
    let yaml = gateway(listeners).replace(
        "spec:\n",
        "spec:\n  allowedListeners: {namespaces: {from: Same}}\n",
    );
    let set = |namespace: &str, port: u16| {
        format!(
            "---\nkind: ListenerSet\nmetadata: {{name: s, namespace: {namespace}}}\nspec:\n  parentRef: {{name: gw, \
             namespace: web}}\n  listeners: [{{name: extra, port: {port}, protocol: HTTP}}]\n"
        )
    };
    // The Gateway does not allow ListenerSets from the second set's namespace.
    let yaml = yaml + &set("web", 8080) + &set("shop", 8081);
    let resolution = published(PublishingType::Headless, &yaml);
    let ports = [(Tcp, 80), (Tcp, 443), (Tcp, 8080), (Udp, 53)];
    assert_eq!(request(&resolution).ports, ports.into());
}

#[test]
fn requested_address_goes_to_load_balancer_or_host() {
    let yaml = gateway("- {name: http, port: 80, protocol: HTTP}")
        .replace("spec:\n", "spec:\n  addresses: [{value: 192.0.2.9}]\n");
    for (type_, gives, balanced) in [
        (PublishingType::Headless, false, false),
        (PublishingType::None, false, false),
        (PublishingType::NodePort, false, false),
        (PublishingType::ClusterIp, true, false),
        (PublishingType::LoadBalancer, true, true),
        (PublishingType::UpstreamGateway, true, true),
    ] {
        let resolution = published(type_.clone(), &yaml);
        let asked = ["192.0.2.9".to_owned()];
        let none: &[String] = &[];
        let (service_addresses, host_addresses) = if balanced {
            (&asked[..], none)
        } else {
            (none, &asked[..])
        };
        assert_eq!(request(&resolution).addresses, service_addresses, "{type_}");
        assert_eq!(request(&resolution).gives_addresses, gives, "{type_}");
        assert_eq!(
            resolution.gateways[0].snapshot.addresses, host_addresses,
            "{type_}"
        );
    }
}

#[test]
fn pods_are_reached_at_service_address() {
    let yaml = gateway("- {name: http, port: 80, protocol: HTTP}");
    let on_pods = FleetSettings {
        management: Some(FleetManagement::Managed),
        workload: Some(FleetWorkload::Deployment),
        ..FleetSettings::default()
    };
    for (type_, gives) in [
        (None, true),
        (Some(PublishingType::NodePort), true),
        (Some(PublishingType::Headless), false),
    ] {
        let resolution = published_by(on_pods.clone(), type_, &yaml);
        assert_eq!(request(&resolution).gives_addresses, gives);
    }
    let nowhere = FleetSettings {
        management: Some(FleetManagement::Unmanaged),
        ..on_pods
    };
    let resolution = published_by(nowhere, None, &yaml);
    assert!(!request(&resolution).gives_addresses);
}
