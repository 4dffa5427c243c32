//! Reading traces and timing their requests.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::simulate::arrivals::arrivals;
use crate::simulate::{Trace, TraceError};

fn read(lines: &str) -> Result<Trace, TraceError> {
    Trace::read(lines.as_bytes())
}

const TWO: &str = r#"{"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 9]}
{"timestamp": 3000, "input_length": 600, "output_length": 2, "hash_ids": [0, 4]}
"#;

#[test]
fn the_form_with_times_is_read() {
    let trace = read(TWO).unwrap();
    assert_eq!((trace.block_tokens, trace.requests.len()), (512, 2));
    assert_eq!(trace.requests[0].blocks(), [0, 1, 9]);
    assert_eq!(trace.requests[1].at_ms, 3000);
    assert!(trace.sessions.is_empty());
}

#[test]
fn the_form_with_sessions_is_read_and_its_turns_brought_together() {
    let line = |session: u32, start: u32, think: u32| {
        format!(
            "{{\"session_id\":{session},\"session_start_ms\":{start},\"think_ms\":{think},\"input_length\":1100,\
             \"output_length\":3,\"hash_runs\":[[7,2],[40,1]]}}\n"
        )
    };
    let lines = [line(5, 90, 0), line(2, 10, 0), line(5, 90, 700)].concat();
    let trace = read(&lines).unwrap();
    assert_eq!(trace.sessions, [0..1, 1..3]);
    assert_eq!(trace.requests[2].think_ms, 700);
    assert_eq!(trace.requests[0].blocks(), [7, 8, 40]);
}

#[test]
fn gzip_and_plain_give_the_same() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(TWO.as_bytes()).unwrap();
    assert_eq!(
        Trace::read(&gzip.finish().unwrap()[..]).unwrap(),
        read(TWO).unwrap()
    );
}

#[test]
fn a_wrong_line_is_named() {
    let wrong = [
        "{}",
        "not json",
        r#"{"timestamp":0,"input_length":10,"output_length":1}"#,
        r#"{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1,2]}"#,
        r#"{"input_length":10,"output_length":1,"hash_ids":[1]}"#,
        r#"{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1],"block_size":0}"#,
    ];
    for line in wrong {
        let error = read(&format!("{TWO}\n{line}\n")).unwrap_err();
        assert!(
            matches!(error, TraceError::Line { line: 4, .. }),
            "{line}: {error}"
        );
    }
    assert!(matches!(read("\n"), Err(TraceError::Empty)));
}

#[test]
fn a_rate_scales_the_times_and_ticks_are_spread_in_order() {
    let lines: String = (0..3000)
        .map(|request| {
            let at_ms = request / 10 * 3000 - request / 1000;
            format!(
                "{{\"timestamp\":{at_ms},\"input_length\":10,\"output_length\":1,\"hash_ids\":[{request}]}}\n"
            )
        })
        .collect();
    let trace = read(&lines).unwrap();
    let times = arrivals(&trace, Some(5.0), 1);
    assert!(times.is_sorted());
    assert_eq!(times[0].0, 0);
    let span_s = times[2999].0 as f64 / 1e6;
    assert!((span_s - 600.0).abs() < 0.01, "{span_s}");
    // 10 requests share 2 s; spread, no two of them come together.
    assert!(times.windows(2).filter(|pair| pair[0] == pair[1]).count() < 5);
    let at = |request: usize| times[request].0 as f64 / 2e6;
    assert!((0..3000).all(|request| (at(request) - (request / 10) as f64).abs() < 1.1));
    assert_eq!(times, arrivals(&trace, Some(5.0), 1));
    assert_ne!(times, arrivals(&trace, Some(5.0), 2));
}

#[test]
fn times_that_are_no_ticks_stay_as_they_are() {
    let trace = read(&TWO.replace("3000", "2500")).unwrap();
    let times: Vec<u64> = arrivals(&trace, None, 1).iter().map(|at| at.0).collect();
    assert_eq!(times, [0, 2_500_000]);
}

#[test]
fn what_most_requests_begin_with_tells_nobody_apart() {
    let lines: String = (0..10)
        .map(|request| {
            let first = if request < 8 { 1 } else { 2 };
            format!(
                "{{\"timestamp\":0,\"input_length\":1536,\"output_length\":1,\"hash_ids\":[{first},{},{}]}}\n",
                first + 2,
                100 + request % 3,
            )
        })
        .collect();
    assert_eq!(read(&lines).unwrap().common_blocks(), 2);
    assert_eq!(read(TWO.lines().next().unwrap()).unwrap().common_blocks(), 3);
}
