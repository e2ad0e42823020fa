//! Explains conditions on client certificates. The names in a certificate are not part of an
//! explained request.

use sesame_proto::schema::{AuthorizationRule, CertificateNames};

/// Returns an empty string if no rule has such conditions.
pub(super) fn describe(rules: &[AuthorizationRule]) -> String {
    let rules = rules.iter().enumerate();
    let conditional = rules.filter(|(_, rule)| !rule.certificates.is_empty());
    let described = conditional.map(|(i, rule)| {
        let certificates = rule.certificates.iter().map(names);
        let certificates = certificates.collect::<Vec<_>>().join(", or ");
        format!("; rule {i} needs a client certificate with {certificates}")
    });
    described.collect()
}

fn names(certificate: &CertificateNames) -> String {
    let CertificateNames {
        dns_names,
        uris,
        dns_suffixes,
        uri_prefixes,
        subject,
    } = certificate;
    let dns_names = dns_names.iter().map(|it| format!("DNS name {it}"));
    let uris = uris.iter().map(|it| format!("URI {it}"));
    let suffixes = dns_suffixes.iter().map(|it| format!("DNS name *{it}"));
    let prefixes = uri_prefixes.iter().map(|it| format!("URI {it}*"));
    let alt_names: Vec<String> = dns_names
        .chain(uris)
        .chain(suffixes)
        .chain(prefixes)
        .collect();
    let alt_names = alt_names.join(" or ");
    let subject = (!subject.is_empty()).then(|| format!("subject {subject:?}"));
    let parts = Some(alt_names).filter(|it| !it.is_empty());
    parts
        .into_iter()
        .chain(subject)
        .collect::<Vec<_>>()
        .join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_certificates_that_they_need() {
        let rule = |certificates| AuthorizationRule {
            certificates,
            ..AuthorizationRule::default()
        };
        let names = CertificateNames {
            uris: vec!["spiffe://a/b".to_owned()],
            dns_suffixes: vec![".a.test".to_owned()],
            subject: "CN=ann".to_owned(),
            ..CertificateNames::default()
        };
        let other = CertificateNames {
            subject: "CN=bob".to_owned(),
            ..CertificateNames::default()
        };
        assert_eq!(
            describe(&[rule(Vec::new()), rule(vec![names, other])]),
            "; rule 1 needs a client certificate with URI spiffe://a/b or DNS name *.a.test and \
             subject \"CN=ann\", or subject \"CN=bob\""
        );
    }
}
