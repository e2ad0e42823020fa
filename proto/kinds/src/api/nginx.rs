//! Objects that ingress-nginx annotations reference.

use sesame_proto::dns_name::is_dns_label;

use super::{Metadata, NGINX_PREFIX};

/// Names, without the prefix, of the annotations that contain the URL of a Service.
pub const NGINX_SERVICE_URLS: [&str; 2] = ["auth-url", "mirror-target"];
/// Name, without the prefix, of the annotation that names a ConfigMap with response headers.
pub const NGINX_CUSTOM_HEADERS: &str = "custom-headers";

/// Name, without the prefix, of the annotation that names a Service in the Ingress's namespace.
pub const NGINX_DEFAULT_BACKEND: &str = "default-backend";

/// Name, without the prefix, of the annotation that names a Secret with users.
pub const NGINX_AUTH_SECRET: &str = "auth-secret";

/// Name, without the prefix, of the annotation that names a Secret with CA certificates.
pub const NGINX_TLS_SECRET: &str = "auth-tls-secret";

const DEFAULT_PORT: u16 = 80;

/// The URL of a Service's port, such as `http://name.namespace.svc.cluster.local:8080/path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceUrl<'m> {
    /// Namespace of the Service.
    pub namespace: &'m str,
    /// Name of the Service.
    pub name: &'m str,
    /// Port of the Service; 80 by default.
    pub port: u16,
    /// Everything after the host and port; may be empty. May contain variables.
    pub path: &'m str,
}

impl<'m> ServiceUrl<'m> {
    /// Parses a URL whose host has the form `name.namespace`, `name.namespace.svc` or
    /// `name.namespace.svc.cluster.local`.
    pub fn parse(url: &'m str) -> Result<Self, String> {
        Self::read(url).ok_or_else(|| {
            format!(
                "{url:?}: expected the URL of a Service, such as \
                 http://name.namespace.svc.cluster.local:8080/path; https, other hosts and \
                 variables are not supported"
            )
        })
    }

    fn read(url: &'m str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let end = rest.find(['/', '?', '$']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
            None => (authority, DEFAULT_PORT),
        };
        let short = host.strip_suffix(".svc.cluster.local");
        let short = short.or_else(|| host.strip_suffix(".svc")).unwrap_or(host);
        let (name, namespace) = short.split_once('.')?;
        (is_dns_label(name) && is_dns_label(namespace)).then_some(Self {
            namespace,
            name,
            port,
            path,
        })
    }
}

/// Returns the Services in an Ingress's annotations. The annotations apply only if the IngressClass
/// enables ingress-nginx's annotations.
pub fn nginx_services(metadata: &Metadata) -> impl Iterator<Item = ServiceUrl<'_>> {
    let urls = NGINX_SERVICE_URLS.into_iter();
    let urls = urls.filter_map(|name| annotation(metadata, name));
    urls.filter_map(|url| ServiceUrl::parse(url).ok())
}

/// Returns the name of the Service that gets requests while a rule's Service has no endpoints.
pub fn nginx_default_backend(metadata: &Metadata) -> Option<&str> {
    annotation(metadata, NGINX_DEFAULT_BACKEND)
}

/// Returns the namespace and name of the ConfigMap with an Ingress's response headers.
pub fn nginx_header_map(metadata: &Metadata) -> Option<(&str, &str)> {
    let value = annotation(metadata, NGINX_CUSTOM_HEADERS)?;
    Some(nginx_reference(metadata, value))
}

/// Returns the namespaces and names of the Secrets with an Ingress's users and its clients' CAs.
pub fn nginx_secrets(metadata: &Metadata) -> impl Iterator<Item = (&str, &str)> {
    let names = [NGINX_AUTH_SECRET, NGINX_TLS_SECRET].into_iter();
    let values = names.filter_map(|name| annotation(metadata, name));
    values.map(|value| nginx_reference(metadata, value))
}

/// Splits `namespace/name`. A value without a slash is a name in the Ingress's own namespace.
pub fn nginx_reference<'m>(metadata: &'m Metadata, value: &'m str) -> (&'m str, &'m str) {
    value
        .split_once('/')
        .unwrap_or((&metadata.namespace, value))
}

fn annotation<'m>(metadata: &'m Metadata, name: &str) -> Option<&'m str> {
    metadata.annotations.get(&format!("{NGINX_PREFIX}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_services_in_all_forms() {
        for (url, port, path) in [
            ("http://auth.login", 80, ""),
            ("http://auth.login.svc/check", 80, "/check"),
            ("http://auth.login.svc.cluster.local:8080?a=b", 8080, "?a=b"),
            ("http://auth.login$request_uri", 80, "$request_uri"),
        ] {
            let expected = ServiceUrl {
                namespace: "login",
                name: "auth",
                port,
                path,
            };
            assert_eq!(ServiceUrl::parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn other_hosts_are_not_services() {
        for url in [
            "",
            "auth.login",
            "//auth.login/",
            "https://auth.login/check",
            "http://auth/check",
            "http://auth.svc/check",
            "http://auth.login.example.com/",
            "http://auth.login.svc.cluster.local./",
            "http://10.0.0.1/",
            "http://[::1]/",
            "http://localhost/",
            "http://Auth.login/",
            "http://auth.login:0/",
            "http://auth.login:65536/",
            "http://auth.login:/",
            "http://auth.login:80:80/",
            "http://auth.login@example.com/",
            "http://auth.login#@example/",
            "http://auth.login\\@example/",
            "http://$host/check",
            "http://auth.$namespace/check",
        ] {
            assert!(ServiceUrl::parse(url).is_err(), "{url}");
        }
    }
}
