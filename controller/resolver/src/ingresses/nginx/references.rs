//! Annotations that refer to other objects: mirrored requests and custom response headers.

use sesame_proto::schema::{Header, HeaderModifier, Mirror};

use super::Annotations;
use crate::backends::{BackendTarget, Connection, Traffic};
use crate::context::grants::Referent;
use crate::routes::rules::RuleContext;
use crate::syntax::header_names::check_name;
use crate::syntax::limits::{self, MAX_HEADER_VALUE, MAX_PROXY_HEADERS};
use sesame_kinds::api::{
    BackendObjectRef, NGINX_CUSTOM_HEADERS, NGINX_DEFAULT_BACKEND, NGINX_PREFIX, ServiceUrl,
    nginx_reference,
};
use sesame_kinds::world::Kind;

/// Returns the name of the Service's Backend.
pub(super) fn service(
    url: &ServiceUrl<'_>,
    cx: &mut RuleContext<'_, '_, '_>,
) -> Result<String, String> {
    let ServiceUrl {
        namespace,
        name,
        port,
        path: _,
    } = url;
    let reference = BackendObjectRef {
        name: (*name).to_owned(),
        namespace: Some((*namespace).to_owned()),
        port: Some((*port).into()),
        ..BackendObjectRef::default()
    };
    let found = cx
        .backends
        .resolve_service(cx.referrer, &reference, Traffic::Http, cx.cx);
    found.map_err(|(_, why)| why)
}

pub(super) fn mirror(
    from: &mut Annotations<'_>,
    cx: &mut RuleContext<'_, '_, '_>,
) -> Option<Mirror> {
    from.read("mirror-request-body", |value| match value {
        "on" => Ok(()),
        other => Err(format!(
            "{other:?} is not supported; mirrored requests have the same body"
        )),
    });
    let backend = from.read("mirror-target", |url| {
        let parsed = ServiceUrl::parse(url)?;
        if !matches!(parsed.path, "$request_uri" | "/$request_uri") {
            return Err(format!(
                "{url:?}: expected $request_uri after the host, because mirrored requests keep \
                 their path"
            ));
        }
        service(&parsed, cx)
    })?;
    Some(Mirror {
        backend,
        numerator: 1,
        denominator: 1,
    })
}

/// Returns the name of the Backend for the first port of a Service in the Ingress's namespace.
pub(super) fn default_backend(
    from: &mut Annotations<'_>,
    connection: Connection,
    cx: &mut RuleContext<'_, '_, '_>,
) -> Option<String> {
    let namespace = cx.referrer.namespace;
    from.read(NGINX_DEFAULT_BACKEND, |name| {
        let service = cx.cx.world.services.get(namespace, name);
        let service =
            service.ok_or_else(|| format!("Service {namespace}/{name} does not exist"))?;
        let port = service.spec.ports.first();
        let port = port.ok_or_else(|| format!("Service {namespace}/{name} has no ports"))?;
        let service = (namespace, service.metadata.name.as_str());
        let found = cx
            .backends
            .of_service(service, port.port, Traffic::Http, connection, cx.cx);
        let target = found.target.and_then(BackendTarget::served);
        target.map_err(|(_, why)| why)
    })
}

/// An invalid header has no effect, but the others do.
pub(super) fn response_headers(
    from: &mut Annotations<'_>,
    cx: &RuleContext<'_, '_, '_>,
) -> Option<HeaderModifier> {
    let metadata = from.metadata;
    let data = from.read(NGINX_CUSTOM_HEADERS, |value| {
        let (namespace, name) = nginx_reference(metadata, value);
        let map = Referent::new(Kind::ConfigMap, namespace, name);
        cx.cx.grants.check(cx.referrer, map)?;
        let map = cx.cx.world.config_maps.get(namespace, name);
        let map = map.ok_or_else(|| format!("ConfigMap {namespace}/{name} does not exist"))?;
        let at = format!("the data of ConfigMap {namespace}/{name}");
        limits::entries(&at, map.data.len(), 0..=MAX_PROXY_HEADERS)?;
        Ok(&map.data)
    })?;
    let mut set = Vec::with_capacity(data.len());
    for (name, value) in data {
        let checked = check_name(format_args!("header"), name);
        let checked = checked
            .and_then(|()| limits::field_value(format_args!("{name}"), value, MAX_HEADER_VALUE));
        match checked {
            Ok(()) => set.push(Header {
                name: name.clone(),
                value: value.clone(),
                parts: Vec::new(),
            }),
            Err(why) => from.notes.push(format!(
                "a header of metadata.annotations {NGINX_PREFIX}{NGINX_CUSTOM_HEADERS} has no \
                 effect: {why}"
            )),
        }
    }
    (!set.is_empty()).then(|| HeaderModifier {
        set,
        ..HeaderModifier::default()
    })
}
