//! Visitors are whoever has a connection to a server that anybody may reach: nobody can hold its door shut for others.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

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
    /// At most so many at once, and so many of one address. Whoever comes next takes the place of the oldest visit of
    /// its own address where that has all of its places, and of the address with the most where there is none left.
    pub(crate) fn new(most: usize, of_one: usize) -> Self {
        Self { most, of_one, there: VecDeque::new() }
    }

    /// Lets one more in, from there.
    pub(crate) async fn enter(
        &mut self,
        from: IpAddr,
        visit: impl Future<Output = ()> + Send + 'static,
    ) {
        let from = from.to_canonical();
        self.there.retain(|(_, visit)| !visit.is_finished());
        let mut count = BTreeMap::<IpAddr, usize>::new();
        self.there.iter().for_each(|(address, _)| *count.entry(*address).or_default() += 1);
        let crowded = count.iter().max_by_key(|(_, count)| **count).map(|(address, _)| *address);
        let leaves = match count.get(&from) {
            Some(count) if *count >= self.of_one => Some(from),
            _ => crowded.filter(|_| self.there.len() >= self.most),
        };
        let at = leaves.and_then(|from| self.there.iter().position(|(other, _)| *other == from));
        if let Some((_, visit)) = at.and_then(|at| self.there.remove(at)) {
            visit.abort();
        }
        self.there.push_back((from, tokio::spawn(visit)));
        // Many may have come at once: each has its turn before the next one's.
        tokio::task::yield_now().await;
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
        let mut all = Vec::new();
        // One that is slow has its places, and loses the oldest of them for another; and for others too, who are many.
        for host in std::iter::repeat_n(1, 9).chain(2..=60) {
            let here = Arc::new(());
            let visit = Arc::clone(&here);
            let stay = async move {
                pending::<()>().await;
                drop(visit);
            };
            visitors.enter(from(host), stay).await;
            all.push(here);
        }
        tokio::task::yield_now().await;
        let gone =
            |(index, here): (usize, &Arc<()>)| (Arc::strong_count(here) == 1).then_some(index);
        let gone: Vec<usize> = all.iter().enumerate().filter_map(gone).collect();
        assert_eq!(gone, [0, 1, 2, 3], "one for its own, three for the last three of 67");
    }

    #[tokio::test]
    async fn who_is_there_at_the_end_may_finish() {
        let (mut visitors, done) = (Visitors::new(4, 4), Arc::new(AtomicUsize::new(0)));
        let here = Arc::new(());
        for stays in [false, true] {
            let (done, here) = (Arc::clone(&done), Arc::clone(&here));
            let visit = async move {
                if stays {
                    pending::<()>().await;
                }
                tokio::task::yield_now().await;
                done.fetch_add(1, Ordering::Relaxed);
                drop(here);
            };
            visitors.enter(from(1), visit).await;
        }
        visitors.end(Duration::from_millis(50)).await;
        tokio::task::yield_now().await;
        assert_eq!((done.load(Ordering::Relaxed), Arc::strong_count(&here)), (1, 1));
    }
}
