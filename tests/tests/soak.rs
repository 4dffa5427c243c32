//! The soak in short, with a fixed seed; `cargo xtask soak` runs it at length.

use std::time::Duration;

use warmpath_tests::{SoakOptions, for_each_datapath, soak};

#[test]
fn a_soak_loses_no_byte_and_leaves_nothing_behind() {
    for_each_datapath(|datapath| {
        let options = SoakOptions {
            datapath,
            seed: 1,
            duration: Duration::from_secs(8),
            clients: 24,
            pressure: 0,
            stall_max: Duration::from_secs(10),
            progress: None,
        };
        match soak(&options) {
            Ok(report) => println!("{report}"),
            Err(error) => panic!("{error:#}"),
        }
    });
}
