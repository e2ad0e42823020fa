//! Decodes Gateway API objects, and resolves them into snapshots and statuses.
//!
//! The controller and the agent both use this crate. Resolution yields a snapshot for each accepted
//! Gateway, and conditions for every object. The same objects produce the same bytes on any
//! machine: this crate opens no file or socket, reads no clock and generates no random numbers.
//!
//! ```
//! use sesame_gateway_api::api::NamespacedName;
//! use sesame_gateway_api::decode::{DecodeLimits, decode, split};
//! use sesame_gateway_api::resolve::{Options, resolve};
//! use sesame_gateway_api::status::{ConditionType, Reason};
//! use sesame_gateway_api::world::{Kind, World};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut world = World::default();
//! let limits = DecodeLimits::default();
//! for decoded in split(MANIFEST).iter().flat_map(|it| decode(it.text, &limits)) {
//!     world.insert(decoded?.object);
//! }
//! let resolution = resolve(&world, &Options::default());
//! assert_eq!(resolution.gateways[0].snapshot.gateway, "Gateway/default/edge");
//! let shop = Kind::HttpRoute.named(NamespacedName::new("default", "shop"));
//! let conditions = &resolution.statuses.routes[&shop].parents[0].conditions;
//! let refs = conditions.iter().find(|it| it.type_ == ConditionType::ResolvedRefs);
//! assert_eq!(refs.map(|it| it.reason), Some(Reason::BackendNotFound));
//! # Ok(())
//! # }
//! /// A Gateway, a route to a missing Service, and a GatewayClass, which is not shown.
//! const MANIFEST: &str = "
//! # {apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: sesame},
//! #  spec: {controllerName: projectsesame.io/gateway-controller}}
//! # ---
//! {apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge},
//!  spec: {gatewayClassName: sesame, listeners: [{name: http, protocol: HTTP, port: 80}]}}
//! ---
//! {apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: shop},
//!  spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: missing, port: 80}]}]}}
//! ";
//! ```
//!
//! [`decode`] reads the types in [`api`], and a [`world`] holds them. [`resolve`] converts a world
//! to snapshots and statuses, and [`explain`] shows how a snapshot handles a request. Modules that
//! depend on the time take it as an argument.

pub mod api;
pub mod certificate_facts;
pub mod decode;
pub mod expiry;
pub mod explain;
pub mod ocsp_response;
pub mod resolve;
pub mod status;
pub mod world;
