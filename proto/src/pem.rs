//! Parses untrusted PEM text without silently dropping sections.
//!
//! The underlying parser drops certificates that are indented, follow another certificate without a
//! line break, or follow a byte order mark.

use std::borrow::Cow;

use rustls_pki_types::pem::{Error, PemObject};

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns all sections of type `T` in order, with an error for each invalid one.
pub fn read<T: PemObject>(pem: &[u8]) -> Vec<Result<T, Error>> {
    // Lossy conversion is safe: text outside sections is ignored, and invalid UTF-8 in a section
    // makes that section invalid.
    let text = String::from_utf8_lossy(pem);
    match lines(&text) {
        Ok(text) => T::pem_slice_iter(text.as_bytes()).collect(),
        Err(error) => vec![Err(error)],
    }
}

/// Returns the first section of type `T`.
pub fn read_first<T: PemObject>(pem: &[u8]) -> Result<T, Error> {
    let mut items = read(pem).into_iter();
    items.next().unwrap_or(Err(Error::NoItemsFound))
}

/// Puts each BEGIN and END at the start of a line. Fails if a section has no END.
fn lines(text: &str) -> Result<Cow<'_, str>, Error> {
    let (mut separate, mut open, mut is_same) = (String::new(), None, true);
    for line in text.split(['\n', '\r']) {
        let mut rest = line;
        loop {
            let marker = rest.trim_start_matches([' ', '\t', BYTE_ORDER_MARK]);
            if marker.starts_with(BEGIN) || marker.starts_with(END) {
                rest = marker;
            }
            let (part, next) = match rest.starts_with(END).then(|| rest.find(BEGIN)).flatten() {
                Some(at) => rest.split_at(at),
                None => (rest, ""),
            };
            if part.starts_with(BEGIN)
                && let Some(label) = open.replace(part)
            {
                let end_marker = label.as_bytes().to_vec();
                return Err(Error::MissingSectionEnd { end_marker });
            }
            if part.starts_with(END) {
                open = None;
            }
            is_same &= part == line;
            separate.push_str(part);
            separate.push('\n');
            if next.is_empty() {
                break;
            }
            rest = next;
        }
    }
    Ok(if is_same {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(separate)
    })
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivatePkcs8KeyDer};

    use super::*;

    fn section(label: &str, body: &str) -> String {
        format!("{BEGIN}{label}-----\n{body}\n{END}{label}-----")
    }

    fn certificates(text: &str) -> Vec<Result<Vec<u8>, String>> {
        read::<CertificateDer<'_>>(text.as_bytes())
            .into_iter()
            .map(|item| item.map(|der| der.to_vec()).map_err(|why| why.to_string()))
            .collect()
    }

    #[test]
    fn joined_sections_are_all_read() {
        let (one, two) = (
            section("CERTIFICATE", "AAAA"),
            section("CERTIFICATE", "BBBB"),
        );
        let both = [Ok(vec![0; 3]), Ok(vec![0x04, 0x10, 0x41])];
        for between in [
            "\n",
            "\r\n",
            "",
            "  ",
            "\n  ",
            "\n\t",
            "\u{feff}",
            "\n\u{feff}",
            "# \n",
            " # ",
        ] {
            let text = format!("{one}{between}{two}\n");
            assert_eq!(certificates(&text), both, "{between:?}");
        }
        let three = format!("{one}{two}{one}");
        assert_eq!(certificates(&three).len(), 3);
        let crl = section("X509 CRL", "AAAA").repeat(2);
        assert_eq!(
            read::<CertificateRevocationListDer<'_>>(crl.as_bytes()).len(),
            2
        );
        let key = format!("{one}{}", section("PRIVATE KEY", "AAAA"));
        assert!(read_first::<PrivatePkcs8KeyDer<'_>>(key.as_bytes()).is_ok());
    }

    #[test]
    fn section_without_end_is_an_error() {
        let open = format!("{BEGIN}CERTIFICATE-----\nAAAA\n");
        let whole = section("CERTIFICATE", "BBBB");
        for text in [
            format!("{open}{whole}"),
            format!("{whole}{open}"),
            open.clone(),
        ] {
            let read = certificates(&text);
            assert!(read.iter().any(Result::is_err), "{text}: {read:?}");
        }
    }

    #[test]
    fn text_between_sections_is_ignored() {
        let one = section("CERTIFICATE", "AAAA");
        let commented = one
            .replace("-----BEGIN", "#-----BEGIN")
            .replace("AAAA", "#AAAA");
        for text in [
            format!("subject=a\n{one}\nissuer=b\n"),
            format!("{one}\n{commented}\n"),
        ] {
            assert_eq!(certificates(&text).len(), 1, "{text}");
        }
        assert!(certificates("").is_empty());
        let first = read_first::<CertificateDer<'_>>(b"");
        assert!(matches!(first, Err(Error::NoItemsFound)));
    }
}
