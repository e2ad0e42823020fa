//! Redirects to the page where clients of an Ingress sign in.

use sesame_tests::agent::AgentUnderTest;
use sesame_tests::checks::Checks;

/// The last page is refused.
pub(crate) const PAGES: [(&str, &str); 4] = [
    ("auth-signin", "https://a.test/start?a=b"),
    ("auth-signin", "https://$host/start?to=$escaped_request_uri"),
    ("auth-signin-redirect-param", "to"),
    ("auth-signin", "https://a.test/?x=$arg_x"),
];

/// Clients return to the page that they requested, or to a shorter path, but never to another host.
pub(crate) async fn sign_ins(agent: &AgentUnderTest, checks: &mut Checks) {
    let whole = "https://a.test/start?a=b&rd=http://login.test";
    let own = "https://own.test/start?to=";
    for (host, prefix) in [("login.test", whole), ("own.test", own)] {
        for (path, returned) in [
            ("/", "/"),
            ("/a/b-c.d/", "/a/b-c.d/"),
            ("/a?b=c/d", "/a?b=c/d"),
            ("/a?b=c&d=e", "/a"),
            ("/a?rd=https://evil.test", "/a"),
            ("/a&rd=https://evil.test", "/"),
            ("//evil.test/a", "/evil.test/a"),
            ("/a?%0d%0ax:y", "/a"),
            ("/%0d%0ax:y", "/"),
            ("/@evil.test", "/"),
        ] {
            let request = agent.get(80, host, path);
            if let Some(reply) = checks.reply(&request).await {
                let location = reply.header("location").unwrap_or_default();
                let location = location.replace(":80", "");
                checks.same(&request, location, format!("{prefix}{returned}"));
                checks.same(&request, reply.status, 302);
                checks.same(&request, reply.header("x-y"), None);
            }
        }
        let allowed = agent.get(80, host, "/").header("authorization", "auth");
        checks.backend(allowed, "a").await;
    }
}
