//! Turns of changes that keep coming: what waits, what of it goes ahead, and what each has cost Envoy's main thread.
//!
//! Must not keep back anything that does not come from the source.

use std::time::{Duration, Instant};

use super::{Serving, pid_of};
use crate::host::processes::main_thread_time;
use crate::run::instance::pacing::{Queue, Turn};

/// Moment at which a change begins, and what Envoy's main thread had used until then.
#[derive(Clone, Copy)]
pub(super) struct Began {
    pub(super) at: Instant,
    used: Option<Duration>,
}

impl Serving {
    /// Returns the queue of the selected target, if it is its turn. Brings Envoy what may go ahead of it otherwise.
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
            let began = self.begin();
            // What has to wait in spite of its turn goes with the rest.
            let ahead = self.publisher.ahead(target, queue, waiting)?;
            self.refused_ahead = !self.publisher.send_ahead(&ahead).await;
            self.note_cost(queue, began);
        }
    }

    pub(super) fn begin(&self) -> Began {
        Began {
            at: Instant::now(),
            used: self.main_thread_time(),
        }
    }

    /// Takes note of what a change of this queue has cost since it began.
    pub(super) fn note_cost(&mut self, queue: Queue, began: Began) {
        let times = self.main_thread_time().zip(began.used);
        // Where that cannot be read, it counts as busy all the while.
        let cost = times.map_or_else(
            || began.at.elapsed(),
            |(now, before)| now.saturating_sub(before),
        );
        self.pacing.note(queue, cost, Instant::now());
    }

    fn main_thread_time(&self) -> Option<Duration> {
        pid_of(&self.state).and_then(main_thread_time)
    }
}
