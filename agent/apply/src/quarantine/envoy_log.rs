//! Extracts rejected resources from Envoy's log messages.

use super::piece::Piece;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RefusedResource {
    /// Envoy could not bind the address.
    Unbound { listener: String, words: String },
    /// Rejected for another reason. `listener` is the name in Envoy.
    Listener { listener: String, words: String },
    /// A piece of the snapshot.
    Piece { piece: Piece, words: String },
}

/// Example: `cds: cluster 'x' config rejected: why`.
pub(super) fn named(messages: &[String]) -> Vec<RefusedResource> {
    messages.iter().filter_map(|message| one(message)).collect()
}

/// Returns true if Envoy could not read a file, for example because it had no free file descriptor.
/// The file may be valid.
pub(crate) fn is_file_read_failure(messages: &[String]) -> bool {
    messages
        .iter()
        .any(|message| message.contains("unable to read file: "))
}

fn one(message: &str) -> Option<RefusedResource> {
    const REJECTED: &str = "' config rejected: ";
    if let Some(rest) = message.strip_prefix("lds: listener '") {
        let (listener, why) = rest.split_once(REJECTED)?;
        let (listener, words) = (listener.to_owned(), why.to_owned());
        return Some(if why.starts_with("cannot bind ") {
            RefusedResource::Unbound { listener, words }
        } else {
            RefusedResource::Listener { listener, words }
        });
    }
    let (cluster, why) = message
        .strip_prefix("cds: cluster '")?
        .split_once(REJECTED)?;
    Some(RefusedResource::Piece {
        piece: Piece::Backend(cluster.to_owned()),
        words: why.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_file_is_blamed_on_host() {
        let lines = |line: &str| vec![line.to_owned()];
        assert!(is_file_read_failure(&lines(
            "Filesystem config update failure: in /x/rds.pb, unable to read file: /x/rds.pb"
        )));
        assert!(!is_file_read_failure(&lines(
            "cds: cluster 'a' config rejected: no"
        )));
    }

    #[test]
    fn log_names_refused_resources_and_port_conflicts() {
        let lines = [
            "lds: listener 'tcp/127.0.0.1/80' config rejected: cannot bind '127.0.0.1:80': Address already in use",
            "lds: listener 'tcp/127.0.0.1/81' config rejected: no good",
            "cds: cluster 'Service/ns/it's/80' config rejected: paths must refer",
            "Filesystem config update rejected: Error adding/updating listener(s) tcp/127.0.0.1/80: cannot bind",
        ]
        .map(str::to_owned);
        let named = named(&lines);
        assert_eq!(
            named,
            [
                RefusedResource::Unbound {
                    listener: "tcp/127.0.0.1/80".to_owned(),
                    words: "cannot bind '127.0.0.1:80': Address already in use".to_owned(),
                },
                RefusedResource::Listener {
                    listener: "tcp/127.0.0.1/81".to_owned(),
                    words: "no good".to_owned(),
                },
                RefusedResource::Piece {
                    piece: Piece::Backend("Service/ns/it's/80".to_owned()),
                    words: "paths must refer".to_owned(),
                },
            ]
        );
    }
}
