//! The watch over the kernel's workers: redirected bytes move only when one of them gets CPU.
//!
//! Where other work starves them, a redirected byte may wait for seconds while a copied one goes at once. So a relay
//! that sees redirected bytes stand still gives nothing more to the kernel, and after a while tries one flow again.

use std::time::Duration;

use crate::types::Micros;

/// Bytes that stand still for as long as this while their client has room mean that the hop has stalled.
pub(super) const STALL: Duration = Duration::from_millis(30);
/// A drain that takes no longer than this is quick.
pub(super) const QUICK: Duration = Duration::from_millis(5);
/// The first pause before a try; each one that fails doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A try that has told nothing for as long as this is over: its flow may have ended, or its engine be silent.
const TRY_MAX: Duration = Duration::from_secs(2);

/// What a flow has seen of the hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its bytes have reached the client's socket, so long after they were asked for.
    Drained(Duration),
    /// They stand still.
    Stalled,
}

/// What changes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    Same,
    /// The kernel gets no more flows; those it has are taken back.
    Close,
    /// It gets them again.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Until then.
    Closed(Micros),
    /// One flow is the kernel's, to see how its bytes move.
    Trying(Micros),
}

/// One relay's view of the hop.
#[derive(Debug)]
pub(super) struct HopWatch {
    state: State,
    pause: Duration,
}

impl Default for HopWatch {
    fn default() -> HopWatch {
        HopWatch {
            state: State::Open,
            pause: PAUSE_MIN,
        }
    }
}

impl HopWatch {
    /// Whether the kernel gets flows as they come.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether one flow is being tried.
    pub(super) fn is_trying(&self) -> bool {
        matches!(self.state, State::Trying(_))
    }

    /// Whether a flow may be given to the kernel now.
    pub(super) fn may_arm(&self, at: Micros) -> bool {
        match self.state {
            State::Open => true,
            State::Closed(until) => at >= until,
            State::Trying(since) => at.since(since) > TRY_MAX,
        }
    }

    /// A flow was given to it.
    pub(super) fn armed(&mut self, at: Micros) {
        if self.state != State::Open {
            self.state = State::Trying(at);
        }
    }

    /// Takes in what a flow has seen.
    pub(super) fn see(&mut self, seen: Seen, at: Micros) -> Turn {
        match (self.state, seen) {
            (State::Open, Seen::Stalled) => {
                self.pause = PAUSE_MIN;
                self.state = State::Closed(at + self.pause);
                Turn::Close
            }
            (State::Trying(_), Seen::Drained(took)) if took <= QUICK => {
                self.state = State::Open;
                Turn::Open
            }
            (State::Trying(_), _) => {
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                self.state = State::Closed(at + self.pause);
                Turn::Same
            }
            // Flows that were taken back at the close tell of the time before it.
            (State::Open, Seen::Drained(_)) | (State::Closed(_), _) => Turn::Same,
        }
    }
}

/// How far redirected bytes have come, from one look to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Bytes that had reached the client's socket.
    given: u64,
    since: Micros,
}

impl Standing {
    pub(super) fn new(at: Micros) -> Standing {
        Standing {
            given: u64::MAX,
            since: at,
        }
    }

    /// Notes how many bytes have reached the client's socket while others wait; `true` = none has moved for
    /// [`STALL`]. `room` tells whether the socket would take more: where it doesn't, the client is slow and not the
    /// hop.
    pub(super) fn stalled(&mut self, given: u64, room: bool, at: Micros) -> bool {
        if given != self.given || !room {
            self.given = given;
            self.since = at;
        }
        at.since(self.since) >= STALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Micros {
        Micros(millis * 1000)
    }

    fn closed(at_ms: u64) -> HopWatch {
        let mut watch = HopWatch::default();
        assert_eq!(watch.see(Seen::Stalled, at(at_ms)), Turn::Close);
        watch
    }

    #[test]
    fn a_stall_closes_the_kernel_and_slow_drains_alone_do_not() {
        let mut watch = HopWatch::default();
        assert_eq!(
            watch.see(Seen::Drained(Duration::from_millis(20)), at(1)),
            Turn::Same
        );
        assert!(watch.may_arm(at(1)));
        assert_eq!(watch.see(Seen::Stalled, at(2)), Turn::Close);
        assert!(!watch.is_open() && !watch.may_arm(at(1001)));
    }

    #[test]
    fn after_the_pause_one_flow_is_tried_and_its_quick_drain_opens() {
        let mut watch = closed(0);
        assert!(watch.may_arm(at(1000)));
        watch.armed(at(1000));
        assert!(watch.is_trying() && !watch.may_arm(at(1001)), "one at a time");
        assert_eq!(
            watch.see(Seen::Drained(Duration::from_millis(1)), at(1050)),
            Turn::Open
        );
        assert!(watch.may_arm(at(1051)));
    }

    #[test]
    fn a_try_that_fails_doubles_the_pause_up_to_its_bound() {
        let mut watch = closed(0);
        let mut now = 1000;
        for pause in [2, 4, 8, 16, 30, 30] {
            assert!(watch.may_arm(at(now)));
            watch.armed(at(now));
            assert_eq!(watch.see(Seen::Stalled, at(now)), Turn::Same);
            assert!(!watch.may_arm(at(now + pause * 1000 - 1)));
            now += pause * 1000;
        }
    }

    #[test]
    fn flows_taken_back_at_the_close_do_not_open_it() {
        let mut watch = closed(0);
        assert_eq!(
            watch.see(Seen::Drained(Duration::from_millis(1)), at(5)),
            Turn::Same
        );
        assert_eq!(watch.see(Seen::Stalled, at(6)), Turn::Same);
        assert!(!watch.may_arm(at(999)) && watch.may_arm(at(1000)));
    }

    #[test]
    fn a_try_that_tells_nothing_is_followed_by_another() {
        let mut watch = closed(0);
        watch.armed(at(1000));
        assert!(!watch.may_arm(at(3000)));
        assert!(watch.may_arm(at(3001)));
    }

    #[test]
    fn bytes_stand_still_only_where_none_moves_and_the_client_has_room() {
        let mut standing = Standing::new(at(0));
        assert!(!standing.stalled(100, true, at(1)));
        assert!(!standing.stalled(100, true, at(30)));
        assert!(standing.stalled(100, true, at(31)));
        assert!(!standing.stalled(101, true, at(32)), "one moved");
        assert!(!standing.stalled(101, false, at(70)), "the client is slow");
        assert!(!standing.stalled(101, true, at(99)));
        assert!(standing.stalled(101, true, at(100)));
    }
}
