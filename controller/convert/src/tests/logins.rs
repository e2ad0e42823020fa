//! Logins of a SecurityPolicy.

use serde_json::{Value, json};

use super::super::as_table;
use super::protections::example_with;
use super::{converted, find};

#[test]
fn login_becomes_access_policy() {
    let login = json!({
        "provider": {
            "issuer": "https://id.example.com",
            "authorizationEndpoint": "https://id.example.com/auth",
            "tokenEndpoint": "https://id.example.com/token",
            "backendRefs": [{"name": "shop", "port": 80}],
        },
        "clientID": "shop",
        "clientSecret": {"name": "client"},
        "scopes": ["openid", "email"],
        "redirectURL": "https://login.example.com/back",
        "logoutPath": "/bye",
        "forwardAccessToken": true,
        "refreshToken": true,
    });
    let expected = json!({
        "provider": {
            "issuer": "https://id.example.com",
            "authorizationEndpoint": "https://id.example.com/auth",
            "tokenEndpoint": "https://id.example.com/token",
            "backendRef": {"name": "shop", "port": 80},
        },
        "clientID": "shop",
        "clientSecret": {"name": "client"},
        "hostnames": ["login.example.com"],
        "scopes": ["email"],
        "redirectPath": "/back",
        "logoutPath": "/bye",
        "forwardToken": "AccessToken",
        "refresh": true,
    });
    let conversion = converted(
        &example_with("SecurityPolicy", "/spec/oidc", login.clone()),
        &[],
    );
    assert!(conversion.is_complete(), "{}", as_table(&conversion));
    let policy = find(&conversion, "AccessPolicy", "shop").expect("a policy");
    assert_eq!(policy["spec"]["oidc"], expected);
    // The endpoint is discovered from the issuer.
    let mut discovered = login.clone();
    discovered["provider"]["tokenEndpoint"] = Value::Null;
    for (issuer, is_complete) in [
        (json!("https://id.example.com"), true),
        (Value::Null, false),
    ] {
        discovered["provider"]["issuer"] = issuer;
        let objects = example_with("SecurityPolicy", "/spec/oidc", discovered.clone());
        assert_eq!(converted(&objects, &[]).is_complete(), is_complete);
    }
    for (pointer, value) in [
        ("/provider/backendRefs", Value::Null),
        ("/clientSecret/namespace", json!("other")),
        ("/passThroughAuthHeader", json!(true)),
    ] {
        let mut changed = login.clone();
        let (parent, name) = pointer.rsplit_once('/').expect("a path");
        changed.pointer_mut(parent).expect("a mapping")[name] = value;
        let objects = example_with("SecurityPolicy", "/spec/oidc", changed);
        assert!(!converted(&objects, &[]).is_complete(), "{pointer}");
    }
}
