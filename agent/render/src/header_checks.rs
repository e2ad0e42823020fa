//! Checks whether a snapshot may set a header, and whether Envoy accepts the header.
//!
//! A snapshot may come from anyone, so never assume that the resolver has checked a header.

use sesame_proto::field_names;

/// Checks that a route may write this header field. An untrusted snapshot could try to set fields
/// that frame a message.
pub(crate) fn check_writable(name: &str) -> Result<(), String> {
    if let Some(why) = field_names::reserved(name) {
        return Err(format!("it {why}"));
    }
    Ok(check_name(name)?)
}

/// Checks that a name is a token according to RFC 9110.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || name.len() > 16_384 || !name.bytes().all(token) {
        return Err("the name is not an RFC 9110 token");
    }
    Ok(())
}

/// Checks that Envoy accepts a header value: no line break, no NUL, and at most 16,384 bytes.
pub(crate) fn check_value(value: &str) -> Result<(), &'static str> {
    if value.len() > 16_384 {
        return Err("the value is longer than 16384 bytes");
    }
    if value.contains(['\0', '\r', '\n']) {
        return Err("the value contains a line break or NUL");
    }
    Ok(())
}

/// Checks a value that a route writes into a request line or into `Host`. The value must not be
/// able to end the line.
pub(crate) fn check_target(value: &str) -> Result<(), &'static str> {
    check_value(value)?;
    if value.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("the value contains a space or a control character");
    }
    Ok(())
}
