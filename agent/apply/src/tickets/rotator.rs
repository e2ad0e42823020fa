//! Rotates a host's session ticket keys, and distributes them to Envoy.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use sesame_files::open::{self, Rule};
use sesame_files::random;
use sesame_proto::tls_parameters::TICKET_KEY_BYTES;
use sesame_render::layout::XdsLayout;
use sesame_render::{StandInTickets, session_ticket_keys};
use tokio::sync::watch;

use super::keys::TicketKeys;
use sesame_host::{create_directory, replace_file};
use sesame_render::xds::{XdsKind, response};

const FILE: &str = "session-ticket-keys";
const MAX_FILE: u64 = 4096;
/// Interval between checks, short because the clock may be adjusted.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Error while creating or storing session ticket keys.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot store session ticket keys: {source}", path = .path.display())]
pub struct TicketsError {
    path: PathBuf,
    source: io::Error,
}

/// Rotates one host's session ticket keys, and stores them in the runtime directory.
#[derive(Debug)]
pub struct TicketRotator {
    path: PathBuf,
    period: Duration,
    newest: watch::Sender<TicketKeys>,
}

/// Receiver for the current session ticket keys. Each clone tracks changes separately.
#[derive(Clone, Debug)]
pub struct Tickets(watch::Receiver<TicketKeys>);

impl TicketRotator {
    /// Creates keys if the runtime directory has none.
    pub fn open(runtime: &Path, period: Duration) -> Result<Self, TicketsError> {
        let path = runtime.join(FILE);
        let found = match open::read(&path, Rule::Own, MAX_FILE) {
            Ok(bytes) => TicketKeys::decode(&bytes),
            Err(error) => {
                tracing::debug!(%error, "no session ticket keys yet");
                None
            }
        };
        let is_new = found.is_none();
        let made = found.map_or_else(
            || Ok(TicketKeys::first(Timestamp::now(), fresh()?)),
            Ok::<_, io::Error>,
        );
        let at = |source| TicketsError {
            path: path.clone(),
            source,
        };
        let newest = watch::Sender::new(made.map_err(at)?);
        let rotator = Self {
            path: path.clone(),
            period,
            newest,
        };
        if is_new {
            rotator.store(&rotator.newest.borrow()).map_err(at)?;
        }
        Ok(rotator)
    }

    /// Returns a receiver for the current keys and later rotations.
    pub fn tickets(&self) -> Tickets {
        Tickets(self.newest.subscribe())
    }

    /// Rotates the keys each time `period` has passed. Never returns.
    /// If a rotation fails, logs the error and keeps the current keys.
    pub async fn run(self) {
        loop {
            let rests = self.newest.borrow().rests(Timestamp::now(), self.period);
            if rests.is_zero() {
                match self.rotate() {
                    Ok(()) => tracing::info!("rotated the session ticket keys"),
                    Err(error) => {
                        let path = self.path.display();
                        tracing::error!(%error, "{path}: keeping the current session ticket keys");
                    }
                }
            }
            let pause = rests.clamp(Duration::from_secs(1), POLL_INTERVAL);
            tokio::time::sleep(pause).await;
        }
    }

    /// Stores the key before using it, because the key must survive an agent restart.
    fn rotate(&self) -> io::Result<()> {
        let next = {
            let now = self.newest.borrow();
            now.rotated(Timestamp::now(), fresh()?)
        };
        self.store(&next)?;
        self.newest.send_replace(next);
        Ok(())
    }

    fn store(&self, keys: &TicketKeys) -> io::Result<()> {
        let staged = self.path.with_extension("new");
        replace_file(&self.path, &staged, &keys.encode())
    }
}

impl Tickets {
    /// Creates keys that are never stored or rotated, for a host where Envoy manages its own
    /// session ticket keys.
    pub fn once() -> io::Result<Self> {
        let keys = TicketKeys::first(Timestamp::now(), fresh()?);
        Ok(Self(watch::Sender::new(keys).subscribe()))
    }

    /// Returns the keys to use in place of session ticket keys that are missing from a Secret.
    pub fn stand_in(&self) -> StandInTickets {
        let keys = self.0.borrow();
        StandInTickets(keys.keys().flatten().copied().collect())
    }

    /// Waits until the keys change, or forever if the rotator has stopped.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The rotator has stopped, so the keys will not change.
            std::future::pending::<()>().await;
        }
    }

    /// Writes the current keys to the SDS file that Envoy watches, and marks them as seen.
    pub fn place(&mut self, layout: &XdsLayout) -> Result<(), TicketsError> {
        let path = layout.tickets();
        let mut place = || {
            let directories = [Some(layout.root()), path.parent(), Some(&layout.staging())];
            for directory in directories.into_iter().flatten() {
                create_directory(directory)?;
            }
            let secret = {
                let keys = self.0.borrow_and_update();
                session_ticket_keys(keys.keys())
            };
            let file = response::encode(XdsKind::Secret, &[secret]);
            replace_file(&path, &layout.staging().join("tickets"), &file.bytes)
        };
        let placed: io::Result<()> = place();
        placed.map_err(|source| TicketsError { path, source })
    }

    /// Rewrites the SDS file after each rotation, and logs errors.
    /// Never returns, even if `tickets` is `None`.
    pub async fn follow(tickets: Option<Self>, layout: XdsLayout) -> Infallible {
        let Some(mut tickets) = tickets else {
            return std::future::pending().await;
        };
        loop {
            tickets.changed().await;
            if let Err(error) = tickets.place(&layout) {
                tracing::error!("{error}; Envoy keeps its current keys");
            }
        }
    }
}

fn fresh() -> io::Result<[u8; TICKET_KEY_BYTES]> {
    let mut key = [0; TICKET_KEY_BYTES];
    random::fill(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn ticket_keys_survive_restart_and_stay_private() {
        let runtime = tempfile::tempdir().expect("a directory");
        let rotator = TicketRotator::open(runtime.path(), HOUR).expect("keys");
        rotator.rotate().expect("rotated");
        let keys = rotator.newest.borrow().clone();
        drop(rotator);
        let next = TicketRotator::open(runtime.path(), HOUR).expect("keys");
        assert_eq!(*next.newest.borrow(), keys);
        let layout = XdsLayout::new(runtime.path().join("xds"));
        next.tickets().place(&layout).expect("placed");
        for path in [runtime.path().join(FILE), layout.tickets()] {
            let mode = std::fs::metadata(&path)
                .expect("a file")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{path:?}");
        }
        std::fs::write(runtime.path().join(FILE), "x").expect("damaged");
        let other = TicketRotator::open(runtime.path(), HOUR).expect("keys");
        assert_ne!(*other.newest.borrow(), keys);
    }
}
