//! Checks whether a snapshot may set a header, and whether Envoy accepts it.
//!
//! Never assume that the resolver checked a header: a snapshot may come from anyone.

use sesame_proto::field_names;

/// Rejects reserved headers, because an untrusted snapshot could change how messages are framed.
pub(crate) fn check_writable(name: &str) -> Result<(), String> {
    if let Some(why) = field_names::reserved(name) {
        return Err(format!("it {why}"));
    }
    Ok(check_name(name)?)
}

/// Checks that the name is a token (RFC 9110).
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || name.len() > 16_384 || !name.bytes().all(token) {
        return Err("the name is not an RFC 9110 token");
    }
    Ok(())
}

/// Checks the value as Envoy does, which rejects line breaks, NUL and more than 16,384 bytes.
pub(crate) fn check_value(value: &str) -> Result<(), &'static str> {
    if value.len() > 16_384 {
        return Err("the value is longer than 16384 bytes");
    }
    if value.contains(['\0', '\r', '\n']) {
        return Err("the value contains a line break or NUL");
    }
    Ok(())
}

/// Checks a value for a request line or `Host`, which must not be able to end the line.
pub(crate) fn check_target(value: &str) -> Result<(), &'static str> {
    check_value(value)?;
    if value.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("the value contains a space or a control character");
    }
    Ok(())
}
