//! Reads the protection against forged requests. Errors start with the field path relative to
//! `spec`.

use sesame_proto::schema::Csrf;

use crate::syntax::limits;
use sesame_kinds::api::CsrfProtection;

pub(super) fn read(policy: &str, spec: &CsrfProtection) -> Result<Csrf, String> {
    let CsrfProtection { additional_origins } = spec;
    let field = ".csrf.additionalOrigins";
    limits::entries(field, additional_origins.len(), 0..=Csrf::MAX_ORIGINS)?;
    for (i, origin) in additional_origins.iter().enumerate() {
        if origin.contains("://") {
            return Err(format!(
                "{field}[{i}] {origin:?} has a scheme, which is not compared; expected a host such \
                 as a.test or a.test:8443"
            ));
        }
        if !Csrf::is_origin(origin) {
            return Err(format!(
                "{field}[{i}] {origin:?} is not an origin; expected a host in lower case, such as \
                 a.test or a.test:8443"
            ));
        }
    }
    Ok(Csrf {
        name: policy.to_owned(),
        additional_origins: additional_origins.clone(),
    })
}
