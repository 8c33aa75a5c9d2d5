//! Visitors are whoever has a connection to a server that anybody may reach: nobody can hold its door shut for others.

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};

/// Who is at a door, the first to come first.
#[derive(Debug)]
pub(crate) struct Visitors {
    most: usize,
    of_one: usize,
    there: VecDeque<(IpAddr, JoinHandle<()>)>,
}

// === impl Visitors ===

impl Visitors {
    /// At most so many at once, and so many of one address. Whoever comes next takes the place of the one who has
    /// been there longest: it had the time to ask.
    pub(crate) fn new(most: usize, of_one: usize) -> Self {
        Self { most, of_one, there: VecDeque::new() }
    }

    /// Lets one more in, from there.
    pub(crate) fn enter(&mut self, from: IpAddr, visit: impl Future<Output = ()> + Send + 'static) {
        let from = from.to_canonical();
        self.there.retain(|(_, visit)| !visit.is_finished());
        let is_same = |(address, _): &(IpAddr, JoinHandle<()>)| *address == from;
        let leaves = if self.there.iter().filter(|visit| is_same(visit)).count() >= self.of_one {
            self.there.iter().position(is_same)
        } else {
            (self.there.len() >= self.most).then_some(0)
        };
        if let Some((_, visit)) = leaves.and_then(|at| self.there.remove(at)) {
            visit.abort();
        }
        self.there.push_back((from, tokio::spawn(visit)));
    }

    /// Waits until all have left, but not for longer than that.
    pub(crate) async fn end(self, within: Duration) {
        let deadline = Instant::now() + within;
        for (_, visit) in self.there {
            let abort = visit.abort_handle();
            if timeout_at(deadline, visit).await.is_err() {
                abort.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use super::*;

    fn from(host: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, host])
    }

    #[tokio::test]
    async fn nobody_keeps_others_out() {
        let mut visitors = Visitors::new(64, 8);
        let mut come = |host: u8| {
            let here = Arc::new(());
            let visit = Arc::clone(&here);
            visitors.enter(from(host), async move {
                pending::<()>().await;
                drop(visit);
            });
            here
        };
        // One that is slow has its places, and loses the oldest of them for another.
        let slow: Vec<_> = (0..=8).map(|_| come(1)).collect();
        let others: Vec<_> = (2..=58).map(&mut come).collect();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let ended: Vec<usize> = slow
            .iter()
            .chain(&others)
            .enumerate()
            .filter(|(_, here)| Arc::strong_count(here) == 1)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(ended, [0, 1], "the slow one's first for its own, its next for the last");
    }

    #[tokio::test]
    async fn who_is_there_at_the_end_may_finish() {
        let (mut visitors, done) = (Visitors::new(4, 4), Arc::new(AtomicUsize::new(0)));
        let here = Arc::new(());
        for stays in [false, true] {
            let (done, here) = (Arc::clone(&done), Arc::clone(&here));
            visitors.enter(from(1), async move {
                if stays {
                    pending::<()>().await;
                }
                tokio::task::yield_now().await;
                done.fetch_add(1, Ordering::Relaxed);
                drop(here);
            });
        }
        visitors.end(Duration::from_millis(50)).await;
        tokio::task::yield_now().await;
        assert_eq!((done.load(Ordering::Relaxed), Arc::strong_count(&here)), (1, 1));
    }
}
