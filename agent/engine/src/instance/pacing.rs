//! Limits the share of time on Envoy's main thread that frequent changes may use. An isolated
//! change must never be delayed. Each queue may also use time that the other queues leave unused.

use std::time::{Duration, Instant};

use sesame_apply::PendingChanges;

/// Time that a burst may use on Envoy's main thread before later changes wait.
const BURST: Duration = Duration::from_secs(1);

/// Maximum debt of all queues together.
const MAX_DEBT: Duration = Duration::from_secs(2);
/// Maximum delay for endpoint changes, short because Envoy keeps sending requests to removed
/// endpoints in the meantime.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Shares are measured in millionths.
const MILLION: u32 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Endpoints in files.
    Endpoints,
    /// Endpoints that are inlined in the list of clusters.
    InlineEndpoints,
    /// Routes, and everything else that is published with them.
    Routes,
}

impl Queue {
    const ALL: [Self; 3] = [Self::Endpoints, Self::InlineEndpoints, Self::Routes];

    pub(super) fn of(waiting: PendingChanges) -> Self {
        let PendingChanges {
            endpoints: _,
            route_tables,
            inline_endpoints,
            rest,
        } = waiting;
        match (rest, inline_endpoints, route_tables) {
            (true, _, _) | (false, false, true) => Self::Routes,
            (false, true, _) => Self::InlineEndpoints,
            (false, false, false) => Self::Endpoints,
        }
    }

    /// The percentages of all queues add up to 100.
    fn percent(self) -> u32 {
        match self {
            Self::Endpoints => 8,
            Self::InlineEndpoints => 22,
            Self::Routes => 70,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    All,
    /// Apply only the part in `queue`, if any. Call `turn` again at `next`.
    Ahead {
        queue: Option<Queue>,
        next: Instant,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Pacing {
    percent: u8,
    all: Debt,
    queues: [Debt; Queue::ALL.len()],
}

/// Time on Envoy's main thread that was used in excess of a share.
#[derive(Clone, Copy, Debug)]
struct Debt {
    spent: Duration,
    at: Instant,
}

impl Debt {
    /// Debt decreases by `share` millionths of the elapsed time.
    fn left(self, share: u32, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at);
        self.spent.saturating_sub(passed * share / MILLION)
    }

    fn settle(&mut self, share: u32, now: Instant) {
        self.spent = self.left(share, now);
        self.at = now;
    }

    fn record(&mut self, cost: Duration, most: Duration, share: u32, now: Instant) {
        self.spent = (self.left(share, now) + cost).min(most);
        self.at = now;
    }

    /// Returns `None` if the change need not wait.
    fn due(self, share: u32, now: Instant) -> Option<Instant> {
        let beyond = self.left(share, now).checked_sub(BURST)?;
        (!beyond.is_zero()).then(|| now + beyond * MILLION / share)
    }
}

impl Pacing {
    pub(super) fn new(percent: u8, now: Instant) -> Self {
        let none = Debt {
            spent: Duration::ZERO,
            at: now,
        };
        Self {
            percent: percent.max(1),
            all: none,
            queues: [none; Queue::ALL.len()],
        }
    }

    pub(super) fn set_percent(&mut self, percent: u8, now: Instant) {
        self.all.settle(self.share(), now);
        for queue in Queue::ALL {
            let share = self.share_of(queue);
            self.queues[queue as usize].settle(share, now);
        }
        self.percent = percent.max(1);
    }

    pub(super) fn record(&mut self, queue: Queue, cost: Duration, now: Instant) {
        self.all.record(cost, MAX_DEBT + cost, self.share(), now);
        let share = self.share_of(queue);
        // Cap the debt, so that later changes pay for at most one such change.
        self.queues[queue as usize].record(cost, BURST + cost, share, now);
    }

    pub(super) fn turn(&self, waiting: PendingChanges, now: Instant) -> Turn {
        let Some(all_due) = self.due(Queue::of(waiting), now) else {
            return Turn::All;
        };
        let (mut next, mut ahead) = (all_due, None);
        for (waits, queue) in [
            (waiting.route_tables_go_ahead(), Queue::Routes),
            (waiting.endpoints, Queue::Endpoints),
        ] {
            match self.due(queue, now) {
                _ if !waits => {}
                None => ahead = Some(queue),
                Some(due) => next = next.min(due),
            }
        }
        Turn::Ahead { queue: ahead, next }
    }

    /// Returns `None` if the change need not wait.
    fn due(&self, queue: Queue, now: Instant) -> Option<Instant> {
        if self.percent >= 100 {
            return None;
        }
        let debt = self.queues[queue as usize];
        let own = debt.due(self.share_of(queue), now)?;
        let due = own.min(self.all.due(self.share(), now)?);
        if queue == Queue::Routes {
            return Some(due);
        }
        Some(due.min(debt.at + LONGEST_PAUSE)).filter(|due| *due > now)
    }

    fn share(&self) -> u32 {
        u32::from(self.percent) * (MILLION / 100)
    }

    fn share_of(&self, queue: Queue) -> u32 {
        self.share() / 100 * queue.percent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const ROUTES: PendingChanges = PendingChanges {
        route_tables: true,
        ..NOTHING
    };
    const ENDPOINTS: PendingChanges = PendingChanges {
        endpoints: true,
        ..NOTHING
    };
    const INLINE: PendingChanges = PendingChanges {
        inline_endpoints: true,
        ..NOTHING
    };
    const NOTHING: PendingChanges = PendingChanges {
        endpoints: false,
        route_tables: false,
        inline_endpoints: false,
        rest: false,
    };

    #[derive(Clone, Copy)]
    struct Stream {
        sort: PendingChanges,
        every: Duration,
        cost: Duration,
    }

    fn stream(sort: PendingChanges, every: u32, cost: u32) -> Stream {
        Stream {
            sort,
            every: MS * every,
            cost: MS * cost,
        }
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct Served {
        spent: Duration,
        batches: u32,
        longest: Duration,
        waited: Duration,
        changes: u32,
    }

    fn minute<const N: usize>(percent: u8, streams: [Stream; N]) -> [Served; N] {
        let start = Instant::now();
        let mut pacing = Pacing::new(percent, start);
        let mut served = [Served::default(); N];
        let mut arrived: [Vec<Instant>; N] = std::array::from_fn(|_| Vec::new());
        let mut next = [start; N];
        let mut now = start;
        while now < start + Duration::from_secs(60) {
            let mut waiting = NOTHING;
            for (number, stream) in streams.iter().enumerate() {
                while next[number] <= now {
                    arrived[number].push(next[number]);
                    next[number] += stream.every;
                }
                if !arrived[number].is_empty() {
                    waiting.endpoints |= stream.sort.endpoints;
                    waiting.route_tables |= stream.sort.route_tables;
                    waiting.inline_endpoints |= stream.sort.inline_endpoints;
                }
            }
            let arrival = *next.iter().min().expect("at least one stream");
            let (all, ahead, until) = match pacing.turn(waiting, now) {
                _ if waiting == NOTHING => (false, None, arrival),
                Turn::All => (true, None, now),
                Turn::Ahead { queue, next } => (false, queue, next.min(arrival)),
            };
            let mut cost = Duration::ZERO;
            for (number, stream) in streams.iter().enumerate() {
                let goes = all || ahead == Some(Queue::of(stream.sort));
                if !goes || arrived[number].is_empty() {
                    continue;
                }
                cost += stream.cost;
                now += stream.cost;
                let served = &mut served[number];
                served.spent += stream.cost;
                served.batches += 1;
                for since in arrived[number].drain(..) {
                    served.longest = served.longest.max(now - since);
                    served.waited += now - since;
                    served.changes += 1;
                }
                if !all {
                    pacing.record(Queue::of(stream.sort), stream.cost, now);
                }
            }
            if all {
                pacing.record(Queue::of(waiting), cost, now);
            }
            now = if cost.is_zero() {
                until.max(now + MS / 100)
            } else {
                now
            };
        }
        served
    }

    #[test]
    fn changes_that_come_alone_never_wait() {
        for (every, cost) in [(1000, 108), (3000, 240), (100, 22), (20, 3)] {
            for sort in [ROUTES, ENDPOINTS, INLINE] {
                let [served] = minute(25, [stream(sort, every, cost)]);
                let what = format!("{sort:?} {every} {cost}");
                assert_eq!(served.changes, 60_000_u32.div_ceil(every), "{what}");
                assert_eq!(served.batches, served.changes, "{what}");
                assert_eq!(served.longest, MS * cost, "{what}");
            }
        }
    }

    #[test]
    fn steady_changes_stay_within_time_share() {
        for (percent, cost) in [(25, 108), (25, 22), (25, 3), (15, 220), (1, 22), (50, 500)] {
            let [served] = minute(percent, [stream(ROUTES, 10, cost)]);
            let what = format!("{percent} {cost}: {served:?}");
            let cost = MS * cost;
            let allowed = Duration::from_secs(60) * u32::from(percent) / 100;
            assert!(served.spent <= allowed + BURST * 2 + cost * 2, "{what}");
            // Nearly the whole share is used.
            if cost >= MS * 22 {
                assert!(served.spent + cost * 2 >= allowed, "{what}");
            }
            let batch = cost * 100 / u32::from(percent);
            assert!(served.longest <= batch + cost + MS * 10, "{what}");
            assert!(served.batches > 1, "{what}");
        }
    }

    #[test]
    fn routes_precede_waiting_inline_endpoints_within_share() {
        let route_changes = stream(ROUTES, 500, 80);
        let [routes, inline] = minute(25, [route_changes, stream(INLINE, 10, 57)]);
        let spent = routes.spent + inline.spent;
        let most = Duration::from_secs(15) + BURST * 4 + MS * 200;
        assert!(spent <= most, "{spent:?}");
        assert!(spent >= Duration::from_secs(14), "{spent:?}");
        let mean = routes.waited / routes.changes;
        assert!(mean <= MS * 100, "{mean:?}");
        assert!(inline.longest <= MS * 1200, "{:?}", inline.longest);
        let [_, slow] = minute(25, [route_changes, stream(INLINE, 10, 140)]);
        assert!(slow.longest <= MS * 1400, "{:?}", slow.longest);
    }

    #[test]
    fn endpoint_files_precede_waiting_routes() {
        let streams = [stream(ROUTES, 10, 80), stream(ENDPOINTS, 10, 2)];
        let [routes, endpoints] = minute(25, streams);
        assert!(
            endpoints.batches > 3 * routes.batches,
            "{endpoints:?} {routes:?}"
        );
        let mean = endpoints.waited / endpoints.changes;
        assert!(mean <= MS * 100, "{mean:?}");
    }

    #[test]
    fn full_time_share_publishes_without_waiting() {
        let [served] = minute(100, [stream(ROUTES, 10, 108)]);
        assert!(served.spent >= Duration::from_secs(60));
        assert!(served.longest <= MS * 216);
    }
}
