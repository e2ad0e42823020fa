//! Removes request headers that authorization services set, because clients must not forge them.
//!
//! Envoy overwrites a header only if the service's response contains it. Therefore, a filter first
//! removes all headers that the service may set.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutationPerRoute, Mutations,
};
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3::Config as SetFilterState;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_proto::schema::{ExternalAuth, external_auth::Protocol};

use super::headers;

/// Runs before the routes' external authorization filters.
pub(crate) const FILTER: &str = "authorization_headers";

/// Run before the listener's external authorization filters. The second filter makes Envoy select
/// the route again, because the first selection may have depended on a removed header.
pub(crate) const LISTENER_FILTER: &str = "listener_authorization_headers";
pub(crate) const REROUTE: &str = "listener_authorization_reroute";

/// `auths` must be in call order.
///
/// A header that a service receives keeps the client's value, because the service can check it. It
/// is still removed if an earlier service may set it.
pub(crate) fn render(auths: &[ExternalAuth]) -> Option<Any> {
    // HTTP services always receive this header.
    let mut shown = BTreeSet::from(["authorization".to_owned()]);
    let mut removed = BTreeSet::new();
    for auth in auths {
        let (request_headers, response_headers): (&[String], &[String]) = match &auth.protocol {
            Some(Protocol::Http(http)) => (&http.request_headers, &http.response_headers),
            Some(Protocol::Grpc(grpc)) => (&grpc.request_headers, &[]),
            Some(Protocol::Oidc(_)) | None => continue,
        };
        shown.extend(request_headers.iter().map(|name| name.to_ascii_lowercase()));
        if matches!(&auth.protocol, Some(Protocol::Http(http)) if http.subrequest) {
            // The service receives all request headers, but can check only credentials.
            shown.insert("cookie".to_owned());
        }
        let set = response_headers
            .iter()
            .map(|name| name.to_ascii_lowercase());
        removed.extend(set.filter(|name| !shown.contains(name)));
    }
    let mutation = |name: String| {
        headers::check_writable(&name)
            .ok()
            .map(|()| HeaderMutation {
                action: Some(Action::Remove(name)),
            })
    };
    let request_mutations: Vec<_> = removed.into_iter().filter_map(mutation).collect();
    (!request_mutations.is_empty()).then(|| {
        pack_any(HeaderMutationPerRoute {
            mutations: Some(Mutations {
                request_mutations,
                ..Default::default()
            }),
        })
    })
}

pub(crate) fn idle() -> Any {
    pack_any(HeaderMutationPerRoute::default())
}

pub(crate) fn reroute() -> Any {
    pack_any(SetFilterState::default())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use sesame_proto::schema::{ExternalAuthGrpc, ExternalAuthHttp};

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn http(request: &[&str], response: &[&str]) -> ExternalAuth {
        ExternalAuth {
            protocol: Some(Protocol::Http(ExternalAuthHttp {
                request_headers: names(request),
                response_headers: names(response),
                ..Default::default()
            })),
            ..Default::default()
        }
    }

    #[test]
    fn subrequests_remove_all_but_credentials() {
        let mut asked = http(&[], &["authorization", "cookie", "x-user"]);
        if let Some(Protocol::Http(http)) = &mut asked.protocol {
            http.subrequest = true;
        }
        assert_eq!(removed(&[asked]), ["x-user"]);
    }

    fn grpc(request: &[&str]) -> ExternalAuth {
        let request_headers = names(request);
        ExternalAuth {
            protocol: Some(Protocol::Grpc(ExternalAuthGrpc {
                request_headers,
                ..Default::default()
            })),
            ..Default::default()
        }
    }

    fn removed(auths: &[ExternalAuth]) -> Vec<String> {
        let Some(config) = render(auths) else {
            return Vec::new();
        };
        let config = HeaderMutationPerRoute::decode(&*config.value).unwrap();
        let mutations = config.mutations.unwrap().request_mutations;
        let name = |mutation: HeaderMutation| match mutation.action {
            Some(Action::Remove(name)) => name,
            other => panic!("{other:?}"),
        };
        mutations.into_iter().map(name).collect()
    }

    #[test]
    fn headers_that_services_only_set_are_removed() {
        assert_eq!(
            removed(&[http(&[], &["X-User", "x-role"])]),
            ["x-role", "x-user"]
        );
        let credentials = ["authorization", "Cookie", "x-user"];
        assert_eq!(removed(&[http(&["cookie"], &credentials)]), ["x-user"]);
        assert_eq!(
            removed(&[http(&[], &["host", "content-length", ":path"])]),
            names(&[])
        );
        assert_eq!(removed(&[http(&["x-token"], &[]), grpc(&[])]), names(&[]));
    }

    #[test]
    fn later_services_may_see_headers_earlier_ones_set() {
        let set = http(&[], &["x-user"]);
        let shown = http(&["x-user"], &[]);
        assert_eq!(removed(&[set.clone(), shown.clone()]), ["x-user"]);
        assert_eq!(removed(&[set.clone(), grpc(&["x-user"])]), ["x-user"]);
        assert_eq!(removed(&[shown, set]), names(&[]));
    }
}
