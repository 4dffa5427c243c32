//! Notices that a peer has left without reading from its connection.
//!
//! All connections of a worker are watched by one epoll instance of its own, for the end of the peer's side only.
//! The runtime's own registration would be woken by each request's bytes too, beside the read that awaits them.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use slab::Slab;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Departures taken from the kernel at once.
const EVENTS_MAX: usize = 64;
/// The end of the peer's side. HUP and ERR are always reported; once is enough.
const GONE: u32 = (libc::EPOLLRDHUP | libc::EPOLLONESHOT) as u32;

thread_local! {
    /// This worker's watch, as long as its runtime lives.
    static WATCH: RefCell<Weak<Watch>> = const { RefCell::new(Weak::new()) };
}

/// The connections that a worker watches.
#[derive(Debug)]
struct Watch {
    epoll: OwnedFd,
    places: RefCell<Slab<Place>>,
}

/// One connection.
#[derive(Debug, Default)]
struct Place {
    gone: bool,
    waker: Option<Waker>,
}

impl Watch {
    /// This thread's watch; begins it, with a task that hears of departures, where there's none.
    fn of_this_thread() -> io::Result<Rc<Watch>> {
        if let Some(watch) = WATCH.with_borrow(Weak::upgrade) {
            return Ok(watch);
        }
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let watch = Rc::new(Watch {
            epoll,
            places: RefCell::default(),
        });
        WATCH.set(Rc::downgrade(&watch));
        // SAFETY: `heard` keeps the descriptor open as long as the task that owns `news` lives.
        let news = unsafe { AsyncFd::register_with_interest(watch.epoll.as_raw_fd(), Interest::READABLE)? };
        let heard = Rc::clone(&watch);
        // Ends with the worker's runtime.
        drop(tokio::task::spawn_local(async move {
            while let Ok(mut guard) = news.readable().await {
                if heard.hear() < EVENTS_MAX {
                    guard.clear_ready();
                }
            }
        }));
        Ok(watch)
    }

    fn control(&self, operation: i32, fd: RawFd, key: usize) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: GONE,
            u64: key as u64,
        };
        // SAFETY: `event` lives through the call.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes the news there is, and wakes who waits for it; how many there were.
    fn hear(&self) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // SAFETY: the pointer and the length come from one array, and it doesn't wait.
        let count =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS_MAX as i32, 0) };
        let count = usize::try_from(count).unwrap_or(0);
        for event in &events[..count] {
            if let Some(place) = self.places.borrow_mut().get_mut(event.u64 as usize) {
                place.gone = true;
                if let Some(waker) = place.waker.take() {
                    waker.wake();
                }
            }
        }
        count
    }
}

/// A standing registration that becomes ready when the peer closes or resets its side.
///
/// It reads nothing, so a pipelined request stays in the socket, and it can be dropped at any time: a pending
/// ring read could not be cancelled and would eat the next request.
#[derive(Debug)]
pub struct Departure {
    watch: Rc<Watch>,
    key: usize,
    fd: RawFd,
}

impl Departure {
    /// Watches `fd`, which must stay open as long as the value lives, on a worker's thread.
    ///
    /// # Errors
    /// What `epoll_ctl` answers, such as ENOSPC at the limit of watches.
    pub fn watch(fd: BorrowedFd<'_>) -> io::Result<Departure> {
        let watch = Watch::of_this_thread()?;
        let key = watch.places.borrow_mut().insert(Place::default());
        let departure = Departure {
            watch,
            key,
            fd: fd.as_raw_fd(),
        };
        departure
            .watch
            .control(libc::EPOLL_CTL_ADD, departure.fd, departure.key)?;
        Ok(departure)
    }

    /// Waits until the peer has closed its writing side or the connection is broken. One task may wait at a time.
    pub async fn wait(&self) {
        std::future::poll_fn(|context| {
            let mut places = self.watch.places.borrow_mut();
            match places.get_mut(self.key) {
                Some(place) if !place.gone => {
                    match &mut place.waker {
                        Some(waker) => waker.clone_from(context.waker()),
                        None => place.waker = Some(context.waker().clone()),
                    }
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        // Before the descriptor closes: its duplicates would keep the registration alive. It fails only where the
        // registration itself had failed.
        let _ = self.watch.control(libc::EPOLL_CTL_DEL, self.fd, self.key);
        self.watch.places.borrow_mut().remove(self.key);
    }
}
