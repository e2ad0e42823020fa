//! Finds the Secrets and ConfigMaps that resolution needs. Searches only objects that this
//! controller's Gateways use. Resolution decides later whether a reference is permitted.

use std::collections::BTreeSet;

use sesame_kinds::api::{
    FrontendTls, Gateway, GatewayTls, JwksConfigMap, Listener, Metadata, NamespacedName,
    NetworkList, ObjectRef, TrustBundleRef, nginx_header_map, nginx_secrets,
};
use sesame_kinds::world::{Kind, ObjectKey, World};
use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};
use sesame_resolver::{
    AuthorityRef, CertificateSource, LayeredReferences, Options, RemoteKeySets,
    external_account_secrets, layered_references, session_ticket_keys,
};

pub(crate) fn references(
    world: &World,
    options: &Options,
    key_sets: &RemoteKeySets<'_>,
) -> BTreeSet<ObjectKey> {
    let mut found = Referenced::default();
    let ours: BTreeSet<&str> = world
        .gateway_classes
        .iter()
        .filter(|class| class.spec.controller_name == options.controller_name)
        .map(|class| class.metadata.name.as_str())
        .collect();
    for gateway in &world.gateways {
        if ours.contains(gateway.spec.gateway_class_name.as_str()) {
            found.gateway(gateway);
        }
    }
    for set in &world.listener_sets {
        let ObjectRef {
            group: _,
            kind: _,
            name,
            namespace,
        } = &set.spec.parent_ref;
        let namespace = namespace.as_deref().unwrap_or(&set.metadata.namespace);
        let parent = world.gateways.get(namespace, name);
        if parent.is_some_and(|parent| ours.contains(parent.spec.gateway_class_name.as_str())) {
            found.listeners(&set.metadata.namespace, &set.spec.listeners);
        }
    }
    let is_ours = |(namespace, name): (&str, &str)| {
        let gateway = world.gateways.get(namespace, name);
        gateway.is_some_and(|it| ours.contains(it.spec.gateway_class_name.as_str()))
    };
    found.layers(layered_references(world, options), is_ours);
    found.policies(world);
    found.key_sets(key_sets);
    for NamespacedName { namespace, name } in external_account_secrets(world, options) {
        found.secret(&namespace, &name);
    }
    found.0
}

#[derive(Default)]
struct Referenced(BTreeSet<ObjectKey>);

impl Referenced {
    fn layers(
        &mut self,
        references: LayeredReferences<'_>,
        is_ours: impl Fn((&str, &str)) -> bool,
    ) {
        let LayeredReferences {
            listeners,
            authorities,
            annotated,
        } = references;
        for implicit in listeners {
            if is_ours(implicit.gateway) {
                let namespace = &implicit.metadata.namespace;
                self.listeners(namespace, &implicit.listeners);
                if let Some(clients) = &implicit.clients {
                    let secrets = [&clients.authorities, &clients.revoked];
                    for reference in secrets.into_iter().flatten() {
                        self.certificate(namespace, reference);
                    }
                }
            }
        }
        for AuthorityRef {
            gateway,
            namespace,
            secret,
        } in authorities
        {
            if is_ours(gateway) {
                self.certificate(namespace, &secret);
            }
        }
        for (gateway, metadata) in annotated {
            if is_ours(gateway) {
                self.nginx_annotations(metadata);
            }
        }
    }

    fn key_sets(&mut self, key_sets: &RemoteKeySets<'_>) {
        for ObjectKey { kind, name } in key_sets.references() {
            self.add(kind, &name.namespace, &name.name);
        }
    }

    fn policies(&mut self, world: &World) {
        for policy in &world.backend_tls_policies {
            for reference in &policy.spec.validation.ca_certificate_refs {
                self.reference(&policy.metadata.namespace, reference);
            }
        }
        for backend in &world.x_backends {
            let tls = backend.spec.tls.as_ref();
            let validation = tls.and_then(|tls| tls.validation.as_ref());
            let references = validation.map(|it| it.ca_certificate_refs.as_slice());
            for reference in references.unwrap_or_default() {
                self.reference(&backend.metadata.namespace, reference);
            }
        }
        for policy in &world.access_policies {
            let filter = policy.spec.ip_filter.iter();
            for NetworkList { name, key: _ } in
                filter.flat_map(|it| it.allow_refs.iter().chain(&it.deny_refs))
            {
                self.config_map(&policy.metadata.namespace, name, None);
            }
            let namespace = &policy.metadata.namespace;
            let users = policy.spec.basic_auth.as_ref().map(|it| &it.users.name);
            let keys = policy.spec.api_key_auth.iter();
            let keys = keys.flat_map(|it| &it.credentials).map(|it| &it.name);
            let client = policy.spec.oidc.as_ref();
            let client = client.map(|it| &it.client_secret.name);
            for name in users.into_iter().chain(keys).chain(client) {
                self.secret(namespace, name);
            }
            let jwt = policy.spec.jwt.as_ref();
            let providers = jwt.map_or(&[][..], |it| &it.providers);
            let references = providers
                .iter()
                .filter_map(|it| it.jwks.config_map_ref.as_ref());
            for JwksConfigMap { name, key: _ } in references {
                self.config_map(&policy.metadata.namespace, name, None);
            }
        }
        for filter in &world.route_filters {
            if let Some(injection) = &filter.spec.credential_injection {
                self.secret(&filter.metadata.namespace, &injection.credential.name);
            }
            if let Some(transcoding) = &filter.spec.grpc_json_transcoding {
                let set = &transcoding.descriptor_set.name;
                self.config_map(&filter.metadata.namespace, set, None);
            }
        }
        for policy in &world.gateway_mesh_policies {
            let namespace = &policy.metadata.namespace;
            self.trust_bundle(namespace, &policy.spec.mesh.trust_bundle);
        }
        let policy_ocgs = world.mesh_ocg_policies.iter().map(|it| &it.spec.ocg);
        let mesh_ocgs = world.x_meshes.iter().filter_map(|it| it.spec.ocg.as_ref());
        for ocg in policy_ocgs.chain(mesh_ocgs) {
            // References without a namespace are ignored.
            self.trust_bundle("", &ocg.trust_bundle);
        }
    }

    fn nginx_annotations(&mut self, metadata: &Metadata) {
        let namespace = &metadata.namespace;
        for (_, name) in nginx_secrets(metadata).filter(|(of, _)| of == namespace) {
            self.secret(namespace, name);
        }
        if let Some((of, name)) = nginx_header_map(metadata) {
            self.config_map(namespace, name, Some(of));
        }
    }

    fn gateway(&mut self, gateway: &Gateway) {
        let namespace = &gateway.metadata.namespace;
        self.listeners(namespace, &gateway.spec.listeners);
        if let Some(mesh) = &gateway.spec.mesh {
            self.trust_bundle(namespace, &mesh.trust_bundle);
        }
        let Some(GatewayTls { backend, frontend }) = &gateway.spec.tls else {
            return;
        };
        if let Some(reference) = backend
            .as_ref()
            .and_then(|backend| backend.client_certificate_ref.as_ref())
            && CertificateSource::of_gateway(&gateway.metadata) == CertificateSource::Secret
        {
            self.certificate(namespace, reference);
        }
        if let Some(FrontendTls { default, per_port }) = frontend {
            let each = std::iter::once(default).chain(per_port.iter().map(|port| &port.tls));
            for validation in each.filter_map(|tls| tls.validation.as_ref()) {
                for reference in &validation.ca_certificate_refs {
                    self.reference(namespace, reference);
                }
            }
        }
    }

    fn trust_bundle(&mut self, from: &str, bundle: &TrustBundleRef) {
        let TrustBundleRef {
            name,
            namespace,
            bundle_key: _,
        } = bundle;
        self.config_map(from, name, namespace.as_deref());
    }

    fn config_map(&mut self, from: &str, name: &str, namespace: Option<&str>) {
        self.add(Kind::ConfigMap, namespace.unwrap_or(from), name);
    }

    fn listeners(&mut self, namespace: &str, listeners: &[Listener]) {
        for tls in listeners
            .iter()
            .filter_map(|listener| listener.tls.as_ref())
        {
            if CertificateSource::of_listener(tls) == CertificateSource::Secret {
                for reference in &tls.certificate_refs {
                    self.certificate(namespace, reference);
                }
            }
            if let Some(name) = session_ticket_keys(&tls.options) {
                self.secret(namespace, name);
            }
        }
    }

    fn secret(&mut self, namespace: &str, name: &str) {
        self.add(Kind::Secret, namespace, name);
    }

    /// The kind defaults to Secret.
    fn certificate(&mut self, from: &str, reference: &ObjectRef) {
        let kind = reference.kind.as_deref().unwrap_or("Secret");
        self.of_kind(kind, from, reference);
    }

    /// Ignores a reference without a kind.
    fn reference(&mut self, from: &str, reference: &ObjectRef) {
        if let Some(kind) = reference.kind.as_deref() {
            self.of_kind(kind, from, reference);
        }
    }

    fn of_kind(&mut self, kind: &str, from: &str, reference: &ObjectRef) {
        let kind = match kind {
            "Secret" => Kind::Secret,
            "ConfigMap" => Kind::ConfigMap,
            _ => return,
        };
        if reference.group.as_deref().is_none_or(str::is_empty) {
            let namespace = reference.namespace.as_deref().unwrap_or(from);
            self.add(kind, namespace, &reference.name);
        }
    }

    fn add(&mut self, kind: Kind, namespace: &str, name: &str) {
        // The name becomes part of a request path, so ignore invalid names.
        if is_dns_label(namespace) && is_dns_subdomain(name) {
            let name = NamespacedName::new(namespace, name);
            self.0.insert(kind.named(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_kinds::decode::{self, DecodeLimits};

    fn world(text: &str) -> World {
        let mut world = World::default();
        for document in decode::split(text) {
            for decoded in decode::decode(document.text, &DecodeLimits::default()) {
                world.insert(decoded.expect("an object").object);
            }
        }
        world
    }

    #[test]
    fn only_valid_names_in_own_gateways_are_references() {
        let world = world(
            r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec:
  controllerName: example.com/ours
  parametersRef: {group: projectsesame.io, kind: SesameConfiguration, namespace: keys, name: template}
---
apiVersion: projectsesame.io/v1alpha1
kind: SesameConfiguration
metadata: {name: template, namespace: keys}
spec:
  ingress: {fallbackCertificate: {namespace: keys, name: fallback}}
  acme: {externalAccount: {keyID: key-1, secretRef: {name: external}}}
---
apiVersion: projectcontour.io/v1
kind: TLSCertificateDelegation
metadata: {name: fallback, namespace: keys}
spec: {delegations: [{secretName: fallback, targetNamespaces: [apps]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.com/other}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: apps}
spec:
  gatewayClassName: ours
  tls:
    backend: {clientCertificateRef: {name: client}}
    frontend:
      default:
        validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: clients}]}
  listeners:
  - name: https
    port: 443
    protocol: HTTPS
    tls:
      certificateRefs:
      - {name: cert, namespace: keys}
      - {name: ../../pods/x}
      - {kind: Vault, group: example.com, name: elsewhere}
      options: {projectsesame.io/session-ticket-keys: tickets}
  - name: on-hosts
    port: 8443
    protocol: HTTPS
    tls:
      certificateRefs: [{name: in-files}]
      options: {projectsesame.io/certificate-source: host}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: foreign, namespace: apps}
spec:
  gatewayClassName: other
  listeners:
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: theirs}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: policy, namespace: apps}
spec:
  targetRefs: [{group: "", kind: Service, name: app}]
  validation:
    hostname: app.example.com
    caCertificateRefs: [{group: "", kind: ConfigMap, name: backends}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: edge, annotations: {projectsesame.io/annotations: Nginx}}
spec:
  controller: projectsesame.io/ingress-controller
  parameters: {apiGroup: gateway.networking.k8s.io, kind: Gateway, scope: Namespace, namespace: apps, name: edge}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: proxy, namespace: apps}
spec:
  ingressClassName: edge
  routes:
  - services:
    - {name: app, port: 80, protocol: tls, validation: {caSecret: keys/authority, subjectName: app.test}}
    - {name: app, port: 80, protocol: tls, validation: {caSecret: ../x, subjectName: app.test}}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: foreign, namespace: apps}
spec:
  ingressClassName: contour
  routes: [{services: [{name: app, port: 80, validation: {caSecret: theirs, subjectName: app.test}}]}]
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {name: pods, namespace: apps}
spec:
  type: EndpointSelector
  endpointSelector: {matchLabels: {app: app}}
  port: {number: 8443}
  tls:
    mode: ServerOnly
    validation:
      hostname: app.example.com
      caCertificateRefs: [{group: "", kind: ConfigMap, name: pods}]
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: clients, namespace: apps}
spec:
  ingressClassName: edge
  virtualhost:
    fqdn: a.test
    tls: {secretName: pair, clientValidation: {caSecret: authorities, crlSecret: lists/revoked}}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: fallback, namespace: apps}
spec:
  ingressClassName: edge
  virtualhost: {fqdn: b.test, tls: {secretName: pair, enableFallbackCertificate: true}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: ours
  namespace: apps
  annotations: {nginx.ingress.kubernetes.io/auth-type: basic, nginx.ingress.kubernetes.io/auth-secret: users}
spec: {ingressClassName: edge}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: foreign
  namespace: apps
  annotations: {nginx.ingress.kubernetes.io/auth-type: basic, nginx.ingress.kubernetes.io/auth-secret: theirs}
spec: {ingressClassName: other}
"#,
        );
        let options = Options {
            controller_name: "example.com/ours".to_owned(),
            ..Options::default()
        };
        let key_sets = RemoteKeySets::of(&world, &options);
        let found = references(&world, &options, &key_sets);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "Secret/apps/authorities",
                "Secret/apps/client",
                "Secret/apps/pair",
                "Secret/apps/tickets",
                "Secret/apps/users",
                "Secret/keys/authority",
                "Secret/keys/cert",
                "Secret/keys/external",
                "Secret/keys/fallback",
                "Secret/lists/revoked",
                "ConfigMap/apps/backends",
                "ConfigMap/apps/clients",
                "ConfigMap/apps/pods",
            ]
        );
    }
}
