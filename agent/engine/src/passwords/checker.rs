//! Runs password checks, and limits how many run and wait.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::Shared;
use sesame_files::random;
use tokio::sync::{Semaphore, oneshot};

use super::sets::{PasswordSets, PasswordVerdict, UserSet};
use super::verified::{CredentialKey, CredentialKeys, Verified};

/// Maximum number of checks of a host that run at the same time, at most half of the processors.
const MOST_RUNNING: usize = 4;
/// Maximum number of different credentials per Gateway whose checks wait or run.
const MOST_WAITING: usize = 64;
/// The same per client, so that a client who guesses passwords leaves room for others.
const MOST_PER_CLIENT: usize = 32;
/// Maximum number of requests per client that wait for a check, equal ones included: half of the
/// connections that Envoy opens, because each of these requests occupies one.
const MOST_REQUESTS_PER_CLIENT: usize = 64;
/// Clients with an IPv6 address usually have a whole network of this size.
const CLIENT_BITS: u32 = 64;

/// Checks passwords for one Gateway.
#[derive(Clone)]
pub(crate) struct PasswordChecker(Arc<Checker>);

/// Creates the checkers of a host. They share its turns and keys.
#[derive(Clone)]
pub(crate) struct PasswordCheckers {
    keys: CredentialKeys,
    /// Number of checks that run at the same time.
    places: usize,
    turns: Arc<Semaphore>,
}

struct Checker {
    keys: CredentialKeys,
    /// The Gateway's checks that run or wait for a turn of the host. There are as many as the host
    /// has turns, so a busy Gateway never fills the host's queue.
    own_turns: Semaphore,
    turns: Arc<Semaphore>,
    state: Mutex<CheckerState>,
}

#[derive(Default)]
struct CheckerState {
    verified: Verified,
    /// Requests with the same credentials share one check.
    running: HashMap<CredentialKey, Shared<oneshot::Receiver<bool>>>,
    /// Number of checks per client.
    clients: HashMap<IpAddr, usize>,
    /// Number of requests that wait, per client.
    requests: HashMap<IpAddr, usize>,
}

/// A request that waits for a check. Must not be dropped while the state is locked.
struct WaitingRequest<'c> {
    checker: &'c Checker,
    client: IpAddr,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        release(&mut self.checker.state().requests, self.client);
    }
}

/// A user's name and password from a request.
pub(super) struct UserPassword {
    pub(super) user: String,
    pub(super) password: Vec<u8>,
}

impl PasswordCheckers {
    pub(crate) fn new() -> io::Result<Self> {
        let mut secret = [0; 32];
        random::fill(&mut secret)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let places = (processors / 2).clamp(1, MOST_RUNNING);
        Ok(Self {
            keys: CredentialKeys::from_secret(&secret),
            places,
            turns: Arc::new(Semaphore::new(places)),
        })
    }

    /// Returns a checker with its own limits.
    pub(crate) fn of_gateway(&self) -> PasswordChecker {
        PasswordChecker(Arc::new(Checker {
            keys: self.keys.clone(),
            own_turns: Semaphore::new(self.places),
            turns: Arc::clone(&self.turns),
            state: Mutex::default(),
        }))
    }
}

impl PasswordChecker {
    /// A request must be admitted by all sets, which are named by their digests.
    pub(super) async fn check(
        &self,
        sets: &PasswordSets,
        names: &[&str],
        sent: &Arc<UserPassword>,
        client: IpAddr,
    ) -> PasswordVerdict {
        for name in names {
            let Some(users) = sets.get(name) else {
                return PasswordVerdict::Unknown;
            };
            match self.check_one(name, users, sent, client).await {
                Some(true) => {}
                Some(false) => return PasswordVerdict::Denied,
                None => return PasswordVerdict::Overloaded,
            }
        }
        PasswordVerdict::Allowed
    }

    /// Returns `None` if the check cannot be performed now.
    async fn check_one(
        &self,
        name: &str,
        users: Arc<UserSet>,
        sent: &Arc<UserPassword>,
        client: IpAddr,
    ) -> Option<bool> {
        let key = self.0.keys.of(name, &sent.user, &sent.password);
        let client = network(client);
        let (outcome, _waiting) = {
            let mut state = self.0.state();
            if state.verified.contains(&key, Instant::now()) {
                return Some(true);
            }
            let of_client = state.requests.get(&client).copied().unwrap_or_default();
            if of_client >= MOST_REQUESTS_PER_CLIENT {
                return None;
            }
            let outcome = match state.running.get(&key) {
                Some(running) => running.clone(),
                None => self.start(&mut state, key, users, Arc::clone(sent), client)?,
            };
            state.requests.insert(client, of_client + 1);
            let checker = &*self.0;
            (outcome, WaitingRequest { checker, client })
        };
        outcome.await.ok()
    }

    /// `client` is the client's network.
    fn start(
        &self,
        state: &mut CheckerState,
        key: CredentialKey,
        users: Arc<UserSet>,
        sent: Arc<UserPassword>,
        client: IpAddr,
    ) -> Option<Shared<oneshot::Receiver<bool>>> {
        let of_client = state.clients.get(&client).copied().unwrap_or_default();
        if state.running.len() >= MOST_WAITING || of_client >= MOST_PER_CLIENT {
            return None;
        }
        let (sender, outcome) = oneshot::channel();
        let outcome = outcome.shared();
        state.running.insert(key, outcome.clone());
        state.clients.insert(client, of_client + 1);
        let checker = Arc::clone(&self.0);
        // A client that disconnects does not stop the check, so its place is always released.
        tokio::spawn(async move {
            // The semaphores are never closed.
            let own_turn = checker.own_turns.acquire().await;
            let turn = checker.turns.acquire().await;
            let admitting =
                tokio::task::spawn_blocking(move || users.admits(&sent.user, &sent.password));
            let admitted = admitting.await;
            drop((turn, own_turn));
            checker.finish(key, client, matches!(admitted, Ok(true)));
            // After a panic, the requests get an error.
            if let Ok(admitted) = admitted {
                let _ = sender.send(admitted);
            }
        });
        Some(outcome)
    }
}

impl Checker {
    fn state(&self) -> MutexGuard<'_, CheckerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, key: CredentialKey, client: IpAddr, admitted: bool) {
        let mut state = self.state();
        state.running.remove(&key);
        if admitted {
            state.verified.add(key, Instant::now());
        }
        release(&mut state.clients, client);
    }
}

fn release(counts: &mut HashMap<IpAddr, usize>, client: IpAddr) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - CLIENT_BITS);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use sesame_proto::keys::KeyPair;

    use super::*;

    /// `ann` with the password `wonderland` (bcrypt), and `bob` with `builder` (SHA-1).
    const USERS: &str = "ann:$2y$05$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW\nbob:{SHA}9SMYoF5RilWWASry7TjeaKwmpGg=\n";

    fn sets() -> (PasswordSets, String) {
        let pair = KeyPair {
            name: "AccessPolicy/web/p/basicAuth".to_owned(),
            private_key: USERS.into(),
            ..KeyPair::default()
        };
        let sets = PasswordSets::default();
        sets.offer([&pair].into_iter());
        (sets, pair.digest())
    }

    fn checker() -> PasswordChecker {
        PasswordCheckers::new().unwrap().of_gateway()
    }

    fn sent(user: &str, password: &str) -> Arc<UserPassword> {
        Arc::new(UserPassword {
            user: user.to_owned(),
            password: password.into(),
        })
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn every_set_must_admit_the_user() {
        let (checker, (sets, digest)) = (checker(), sets());
        for (user, password, verdict) in [
            ("ann", "wonderland", PasswordVerdict::Allowed),
            ("ann", "wonderland", PasswordVerdict::Allowed),
            ("bob", "builder", PasswordVerdict::Allowed),
            ("ann", "builder", PasswordVerdict::Denied),
            ("eve", "wonderland", PasswordVerdict::Denied),
            ("", "", PasswordVerdict::Denied),
        ] {
            let sent = sent(user, password);
            let names = [&*digest, &*digest];
            let found = checker.check(&sets, &names, &sent, CLIENT).await;
            assert_eq!(found, verdict, "{user} {password}");
        }
        let ann = sent("ann", "wonderland");
        let names = [&*digest, "other"];
        let found = checker.check(&sets, &names, &ann, CLIENT).await;
        assert_eq!(found, PasswordVerdict::Unknown);
    }

    #[tokio::test]
    async fn clients_share_room_and_equal_checks() {
        let (checker, (sets, digest)) = (checker(), sets());
        let names = [&*digest];
        let turns = u32::try_from(checker.0.turns.available_permits()).unwrap();
        let all = checker.0.turns.acquire_many(turns).await.unwrap();
        let guess = |number: usize| sent("ann", &number.to_string());
        let waiting = |sent: Arc<UserPassword>, client| {
            let (checker, sets, names) = (&checker, &sets, &names);
            async move { checker.check(sets, names, &sent, client).now_or_never() }
        };
        for number in 0..MOST_PER_CLIENT {
            assert_eq!(waiting(guess(number), CLIENT).await, None);
        }
        let overloaded = Some(PasswordVerdict::Overloaded);
        assert_eq!(waiting(guess(100), CLIENT).await, overloaded);
        // The same credentials take no further room.
        assert_eq!(waiting(guess(0), CLIENT).await, None);
        for number in MOST_PER_CLIENT..MOST_WAITING {
            let client = Ipv6Addr::from_bits((number as u128) << 64);
            assert_eq!(waiting(guess(number), client.into()).await, None);
        }
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(waiting(guess(100), other).await, overloaded);
        assert_eq!(checker.0.state().running.len(), MOST_WAITING);
        drop(all);
        let last = guess(MOST_WAITING - 1);
        let last = checker.check(&sets, &names, &last, CLIENT).await;
        assert_eq!(last, PasswordVerdict::Denied);
    }

    #[tokio::test]
    async fn equal_requests_of_one_client_leave_connections_for_others() {
        let (checker, (sets, digest)) = (checker(), sets());
        let names = [&*digest];
        let turns = u32::try_from(checker.0.turns.available_permits()).unwrap();
        let all = checker.0.turns.acquire_many(turns).await.unwrap();
        let guess = sent("ann", "guess");
        let mut waiting = Vec::new();
        for _ in 0..MOST_REQUESTS_PER_CLIENT {
            let mut request = Box::pin(checker.check(&sets, &names, &guess, CLIENT));
            assert_eq!(request.as_mut().now_or_never(), None);
            waiting.push(request);
        }
        let one_more = checker.check(&sets, &names, &guess, CLIENT).now_or_never();
        assert_eq!(one_more, Some(PasswordVerdict::Overloaded));
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let of_other = checker.check(&sets, &names, &guess, other).now_or_never();
        assert_eq!(of_other, None);
        drop(waiting);
        assert!(checker.0.state().requests.is_empty());
        drop(all);
        let verdict = checker.check(&sets, &names, &guess, CLIENT).await;
        assert_eq!(verdict, PasswordVerdict::Denied);
    }

    #[tokio::test]
    async fn busy_gateway_leaves_turns_for_others() {
        let (host, (sets, digest)) = (PasswordCheckers::new().unwrap(), sets());
        let (busy, other) = (host.of_gateway(), host.of_gateway());
        let names = [&*digest];
        let turns = u32::try_from(host.places).unwrap();
        let all = host.turns.acquire_many(turns).await.unwrap();
        for number in 0..MOST_WAITING {
            let client = Ipv6Addr::from_bits((number as u128) << 64).into();
            let guess = sent("ann", &number.to_string());
            let waiting = busy.check(&sets, &names, &guess, client).now_or_never();
            assert_eq!(waiting, None);
        }
        let ann = sent("ann", "wonderland");
        let overloaded = busy.check(&sets, &names, &ann, CLIENT).await;
        assert_eq!(overloaded, PasswordVerdict::Overloaded);
        let mut request = Box::pin(other.check(&sets, &names, &ann, CLIENT));
        assert_eq!(request.as_mut().now_or_never(), None);
        drop(all);
        assert_eq!(request.await, PasswordVerdict::Allowed);
        let rest = busy.0.state().running.len();
        assert!(rest > 0, "the busy Gateway's checks did not come first");
    }
}
