//! The relay's part in the watch over the hop: which flows are looked at, and what is done about a stall.

use super::event_loop::Loop;
use super::hop::{HopWatch, Seen, Turn};
use super::kernel_side::Mode;
use crate::types::Micros;

/// Kernel flows looked at in one sweep: three or four system calls each.
const LOOKS_MAX: usize = 4;

/// The watch of one relay.
#[derive(Debug, Default)]
pub(super) struct Hop {
    watch: HopWatch,
    /// The flow that is being tried.
    trying: Option<usize>,
    /// Flows that are looked at again in the next sweep.
    looked_at: Vec<usize>,
    /// Where the search for the next ones begins.
    next: usize,
}

impl Hop {
    pub(super) fn is_open(&self) -> bool {
        self.watch.is_open()
    }

    pub(super) fn may_arm(&self, at: Micros) -> bool {
        self.watch.may_arm(at)
    }

    pub(super) fn armed(&mut self, key: usize, at: Micros) {
        self.watch.armed(at);
        self.trying = self.watch.is_trying().then_some(key);
    }

    fn see(&mut self, key: usize, seen: Seen, at: Micros) -> Turn {
        if self.watch.is_trying() && self.trying != Some(key) {
            // It tells of the time before the try.
            return Turn::Same;
        }
        self.watch.see(seen, at)
    }
}

impl Loop {
    /// Heeds what a flow has seen of the hop.
    pub(super) fn hop_seen(&mut self, key: usize, seen: Seen, at: Micros) {
        let Some(news) = &mut self.news else { return };
        match news.hop.see(key, seen, at) {
            Turn::Same => {}
            Turn::Open => {
                self.metrics.kernel_hop_stalled.dec();
                tracing::info!("redirected bytes move again: the kernel gets flows");
            }
            Turn::Close => {
                self.metrics.kernel_hop_stalled.inc();
                self.metrics.kernel_hop_stalls_total.inc();
                tracing::warn!(
                    "redirected bytes stand still, since the kernel's workers get no CPU: flows go by copy"
                );
                self.take_all_back(at);
            }
        }
    }

    fn take_all_back(&mut self, at: Micros) {
        let kernel = |(key, entry): (usize, &super::event_loop::Entry)| {
            (entry.carried.mode == Mode::Kernel).then_some(key)
        };
        let keys: Vec<usize> = self.flows.iter().filter_map(kernel).collect();
        for key in keys {
            self.act(key, |carried, _| carried.reclaim(None, at));
        }
    }

    /// Looks at some of the flows that the kernel has, and at the one that is being tried.
    pub(super) fn watch_hop(&mut self, at: Micros) {
        let Some(news) = &mut self.news else { return };
        let tried = news.hop.trying.take_if(|_| news.hop.watch.is_trying());
        let mut looks = std::mem::take(&mut news.hop.looked_at);
        let mut next = news.hop.next;
        if news.hop.is_open() {
            // In the order of their keys, from where the last sweep ended.
            for _ in 0..LOOKS_MAX * 4 {
                if looks.len() >= LOOKS_MAX {
                    break;
                }
                let kernel = self
                    .flows
                    .get(next)
                    .is_some_and(|entry| entry.carried.mode == Mode::Kernel);
                if kernel && !looks.contains(&next) {
                    looks.push(next);
                }
                next = if next >= self.flows.capacity() {
                    0
                } else {
                    next + 1
                };
            }
        }
        let mut again = Vec::new();
        for key in looks {
            let Some(entry) = self.flows.get_mut(key) else {
                continue;
            };
            if entry.carried.watch_hop(at) {
                again.push(key);
            }
            if let Some(seen) = entry.carried.kernel.seen.take() {
                self.hop_seen(key, seen, at);
            }
        }
        if let Some(news) = &mut self.news {
            news.hop.looked_at = again;
            news.hop.next = next;
            news.hop.trying = tried;
        }
        if let Some(key) = tried
            && self
                .flows
                .get(key)
                .is_some_and(|entry| entry.carried.kernel_has_carried())
        {
            // Its drain tells how the hop is.
            self.act(key, |carried, _| carried.reclaim(None, at));
        }
    }
}
