//! An issuer of JSON Web Tokens (RFC 7519), signed with ECDSA on P-256.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// An issuer with a single key.
pub struct Issuer {
    name: &'static str,
    kid: String,
    key: EcdsaKeyPair,
}

impl Issuer {
    /// Creates an issuer with a new key, whose ID is `kid`.
    pub fn new(name: &'static str, kid: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random);
        Self {
            name,
            kid: kid.to_owned(),
            key: key.expect("the generated key"),
        }
    }

    /// Returns the public key as a JSON Web Key.
    pub fn jwk(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({"kty": "EC", "crv": "P-256", "kid": self.kid, "x": x, "y": y})
    }

    /// Returns a key set with these issuers' public keys.
    pub fn jwks(issuers: &[&Self]) -> String {
        let keys: Vec<Value> = issuers.iter().map(|it| it.jwk()).collect();
        json!({"keys": keys}).to_string()
    }

    /// Returns a signed token. `claims` may override the default `iss`, `aud` and `exp`.
    pub fn token(&self, claims: &Value) -> String {
        let mut all = json!({"iss": self.name, "aud": "shop", "exp": 4_000_000_000_u64});
        for (name, value) in claims.as_object().expect("an object") {
            all[name] = value.clone();
        }
        self.signed(&json!({"alg": "ES256", "kid": self.kid}), &all)
    }

    /// Returns a token whose HMAC key is the public key. Verifiers must reject it.
    pub fn confused(&self, claims: &Value) -> String {
        let text = unsigned(&json!({"alg": "HS256", "kid": self.kid}), claims);
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.public_key().as_ref());
        let signed = text.trim_end_matches('.');
        let signature = hmac::sign(&key, signed.as_bytes());
        format!("{text}{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns a token with exactly these claims, except nulls.
    pub fn signed(&self, header: &Value, claims: &Value) -> String {
        let mut claims = claims.clone();
        let members = claims.as_object_mut().expect("an object");
        members.retain(|_, value| !value.is_null());
        self.signed_text(&header.to_string(), &claims.to_string())
    }

    /// Returns a token whose header and claims are exactly these texts.
    pub fn signed_text(&self, header: &str, claims: &str) -> String {
        let text = [header, claims].map(|it| URL_SAFE_NO_PAD.encode(it));
        let text = text.join(".");
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.expect("a signature"));
        format!("{text}.{signature}")
    }
}

/// Returns a well-formed token without a signature.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let encoded = [header, claims].map(|it| URL_SAFE_NO_PAD.encode(it.to_string()));
    format!("{}.", encoded.join("."))
}
