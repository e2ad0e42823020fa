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
    /// Brings Envoy what may go ahead of the selected target. Returns false if it is the turn of all of it.
    pub(super) async fn waits_for_turn(&mut self) -> bool {
        loop {
            let target = self.selector.selected();
            let waiting = self.publisher.waiting(target);
            let Turn::Ahead {
                endpoints,
                route_tables,
                next,
            } = self.pacing.turn(waiting, Instant::now())
            else {
                return false;
            };
            self.turn = Some(next);
            if self.refused_ahead || !(endpoints || route_tables) {
                return true;
            }
            let began = self.begin();
            let (queue, ahead) = if endpoints {
                (Queue::Endpoints, self.publisher.endpoints_ahead(target))
            } else {
                let tables = self.publisher.route_tables_ahead(target, waiting);
                (Queue::Routes, tables)
            };
            // What has to wait in spite of its turn goes with the rest.
            let Some(ahead) = ahead else {
                return true;
            };
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
