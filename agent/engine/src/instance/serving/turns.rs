//! Schedules frequent changes by their CPU time on Envoy's main thread. Changes that do not come
//! from the source must never wait.

use std::time::{Duration, Instant};

use super::{Serving, pid_of};
use crate::instance::pacing::{Queue, Turn};
use sesame_host::processes::main_thread_time;

#[derive(Clone, Copy)]
pub(super) struct TurnStart {
    pub(super) at: Instant,
    used: Option<Duration>,
}

impl Serving {
    /// If the target must wait, applies some of its parts early.
    pub(super) async fn its_turn(&mut self) -> Option<Queue> {
        loop {
            let target = self.selector.selected();
            let waiting = self.publisher.waiting(target);
            let turn = self.pacing.turn(waiting, Instant::now());
            let (true, Turn::Ahead { queue, next }) = (self.paced, turn) else {
                return Some(Queue::of(waiting));
            };
            self.turn = Some(next);
            let queue = queue.filter(|_| !self.refused_ahead)?;
            let start = self.begin();
            // A part that cannot be applied early waits for the rest of the change.
            let ahead = self.publisher.ahead(target, queue, waiting)?;
            self.refused_ahead = !self.publisher.send_ahead(&ahead).await;
            self.record_cost(queue, start);
        }
    }

    pub(super) fn begin(&self) -> TurnStart {
        TurnStart {
            at: Instant::now(),
            used: self.main_thread_time(),
        }
    }

    pub(super) fn record_cost(&mut self, queue: Queue, start: TurnStart) {
        let times = self.main_thread_time().zip(start.used);
        // If the CPU time is unknown, assume that the thread was busy throughout.
        let cost = times.map_or_else(
            || start.at.elapsed(),
            |(now, before)| now.saturating_sub(before),
        );
        self.pacing.record(queue, cost, Instant::now());
    }

    fn main_thread_time(&self) -> Option<Duration> {
        pid_of(&self.state).and_then(main_thread_time)
    }
}
