//! Faults as words.

use std::time::Duration;

use crate::simulate::Fault;

/// Reads one `--fault`.
pub(super) fn parse(text: &str) -> Result<Fault, String> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "slow" => slow(rest),
        "restart" => restart(rest),
        "capacity" => factor(rest).map(Fault::Capacity),
        "speed" => factor(rest).map(Fault::Speed),
        "lag" => match rest.parse() {
            Ok(ms) => Ok(Fault::EventLag(Duration::from_millis(ms))),
            Err(_) => Err("write lag:MS, as in lag:250".to_owned()),
        },
        _ => Err(
            "slow:BACKEND:FACTOR[@S], restart:BACKEND@S, capacity:FACTOR, speed:FACTOR or lag:MS".to_owned(),
        ),
    }
}

fn slow(text: &str) -> Result<Fault, String> {
    let usage = || "write slow:BACKEND:FACTOR[@S], as in slow:3:2.5@60".to_owned();
    let (what, at) = text.split_once('@').unwrap_or((text, "0"));
    let (backend, by) = what.split_once(':').ok_or_else(usage)?;
    Ok(Fault::Slow {
        backend: backend.parse().map_err(|_| usage())?,
        factor: factor(by)?,
        at: seconds(at).ok_or_else(usage)?,
    })
}

fn restart(text: &str) -> Result<Fault, String> {
    let usage = || "write restart:BACKEND@S, as in restart:3@60".to_owned();
    let (backend, at) = text.split_once('@').ok_or_else(usage)?;
    Ok(Fault::Restart {
        backend: backend.parse().map_err(|_| usage())?,
        at: seconds(at).ok_or_else(usage)?,
    })
}

fn factor(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number: &f64| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| "the factor must be a number from 0.001 to 1000".to_owned())
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::simulate::Fault;
    use std::time::Duration;

    #[test]
    fn faults_are_read() {
        let at = Duration::from_secs(60);
        let slow = Fault::Slow {
            backend: 3,
            factor: 2.5,
            at,
        };
        assert_eq!(parse("slow:3:2.5@60"), Ok(slow));
        assert_eq!(parse("restart:3@60"), Ok(Fault::Restart { backend: 3, at }));
        assert_eq!(parse("capacity:0.5"), Ok(Fault::Capacity(0.5)));
        assert_eq!(parse("speed:2"), Ok(Fault::Speed(2.0)));
        assert_eq!(parse("lag:250"), Ok(Fault::EventLag(Duration::from_millis(250))));
    }

    #[test]
    fn a_wrong_fault_says_what_to_write() {
        for wrong in [
            "",
            "slow",
            "slow:1",
            "slow:x:2",
            "restart:1",
            "restart:1@-1",
            "capacity:0",
            "lag:x",
            "fire",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
