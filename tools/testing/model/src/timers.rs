// SPDX-License-Identifier: GPL-2.0

//! Things to do later, in order of their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use std::time::Instant;

/// A queue of values with deadlines. Equal deadlines keep their order.
#[derive(Debug)]
pub struct Timers<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    seq: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            next: 0,
        }
    }
}

impl<T> Timers<T> {
    /// Adds `what` for `at`.
    pub fn add(&mut self, at: Instant, what: T) {
        self.heap.push(Reverse(Entry {
            at,
            seq: self.next,
            what,
        }));
        self.next += 1;
    }

    /// Takes the first value whose time has come.
    pub fn pop(&mut self, now: Instant) -> Option<T> {
        if self.heap.peek().is_some_and(|Reverse(e)| e.at <= now) {
            self.heap.pop().map(|Reverse(e)| e.what)
        } else {
            None
        }
    }

    /// Time until the first deadline.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.heap
            .peek()
            .map(|Reverse(e)| e.at.saturating_duration_since(now))
    }

    /// Keeps the values for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.heap.retain(|Reverse(e)| keep(&e.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_then_of_arrival() {
        let t0 = Instant::now();
        let ms = Duration::from_millis;
        let mut t = Timers::default();
        t.add(t0 + ms(5), "late");
        t.add(t0, "a");
        t.add(t0, "b");
        assert_eq!(t.wait(t0), Some(ms(0)));
        assert_eq!(
            (t.pop(t0), t.pop(t0), t.pop(t0)),
            (Some("a"), Some("b"), None)
        );
        assert_eq!(t.wait(t0), Some(ms(5)));
        t.retain(|w| *w != "late");
        assert_eq!(t.wait(t0), None);
    }
}
