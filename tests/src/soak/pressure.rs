//! Other load on the same host: busy threads that mix work, system calls and short sleeps.

use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::random::Random;

/// Threads under load, until it's dropped.
#[derive(Debug)]
pub(super) struct Pressure {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pressure {
    pub(super) fn start(threads: usize, seed: u64) -> Pressure {
        let stop = Arc::<AtomicBool>::default();
        let threads = (0..threads as u64)
            .map(|index| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || burn(&stop, seed ^ index))
            })
            .collect();
        Pressure { stop, threads }
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn burn(stop: &AtomicBool, seed: u64) {
    let mut random = Random::new(seed);
    let mut zeros = File::open("/dev/zero").ok();
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Acquire) {
        let until = Instant::now() + Duration::from_micros(100 + random.up_to(2000) as u64);
        while Instant::now() < until {
            if let Some(zeros) = &mut zeros {
                let _ = zeros.read(&mut buffer);
            }
            for _ in 0..200 {
                black_box(random.next_u64());
            }
        }
        thread::sleep(Duration::from_micros(50 + random.up_to(450) as u64));
    }
}
