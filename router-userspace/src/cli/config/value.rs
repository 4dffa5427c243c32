//! Reading single values: durations, sizes, numbers, choices, addresses.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Value;

use super::fault::Complaint;
use super::suggest::nearest;

type Read<T> = Result<T, Complaint>;

/// A duration's bound: a year, so that sums of times can't overflow.
const DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);

/// A string.
pub(super) fn text(value: &Value) -> Read<String> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        Some(_) => Err(Complaint::new("empty", "give a value or remove the key")),
        None => Err(Complaint::new("not a string", "put it in quotes")),
    }
}

/// `true` or `false`.
pub(super) fn boolean(value: &Value) -> Read<bool> {
    value
        .as_bool()
        .ok_or_else(|| Complaint::new("neither true nor false", "write true or false, without quotes"))
}

/// A whole number in `range`; from a flag also in digits.
pub(super) fn integer<T: TryFrom<i64>>(range: RangeInclusive<i64>) -> impl FnOnce(&Value) -> Read<T> {
    move |value| {
        let remedy = format!("write {} to {}", range.start(), range.end());
        let number = value
            .as_integer()
            .or_else(|| value.as_str().and_then(|digits| digits.parse().ok()));
        let Some(number) = number else {
            return Err(Complaint::new("not a whole number", remedy));
        };
        if !range.contains(&number) {
            return Err(Complaint::new("out of range", remedy));
        }
        T::try_from(number).map_err(|_| Complaint::new("out of range", remedy))
    }
}

/// A number in `range`, whole or not.
pub(super) fn number(range: RangeInclusive<f64>) -> impl FnOnce(&Value) -> Read<f64> {
    move |value| {
        let remedy = format!("write {} to {}", range.start(), range.end());
        let whole = || value.as_integer().map(|number| number as f64);
        match value.as_float().or_else(whole) {
            Some(number) if range.contains(&number) => Ok(number),
            Some(_) => Err(Complaint::new("out of range", remedy)),
            None => Err(Complaint::new("not a number", remedy)),
        }
    }
}

/// A count of bytes in `range`: a whole number, or a string such as `"64KiB"`.
pub(super) fn bytes<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl FnOnce(&Value) -> Read<T> {
    move |value| {
        let remedy = format!(
            "write {} to {} bytes, such as \"64KiB\"",
            range.start(),
            range.end()
        );
        let count = match value {
            Value::Integer(count) => u64::try_from(*count).ok(),
            Value::String(text) => parse_bytes(text),
            _ => None,
        };
        match count {
            Some(count) if range.contains(&count) => {
                T::try_from(count).map_err(|_| Complaint::new("out of range", remedy))
            }
            Some(_) => Err(Complaint::new("out of range", remedy)),
            None => Err(Complaint::new("not a size", remedy)),
        }
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 1u64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
    let (digits, scale) = units
        .iter()
        .find_map(|(unit, scale)| text.strip_suffix(unit).map(|digits| (digits, *scale)))
        .unwrap_or((text, 1));
    digits.trim_end().parse::<u64>().ok()?.checked_mul(scale)
}

/// A time above zero, such as `"250ms"`, `"10s"`, `"5m"`, `"1h"`.
pub(super) fn duration(value: &Value) -> Read<Duration> {
    const REMEDY: &str = "write a number and a unit, such as \"250ms\", \"10s\", \"5m\" or \"1h\"";
    let Some(text) = value.as_str() else {
        return Err(match value.as_integer() {
            Some(number) => Complaint::new("unit missing", format!("write \"{number}s\" or \"{number}ms\"")),
            None => Complaint::new("not a duration", REMEDY),
        });
    };
    if text == "off" {
        return Err(Complaint::new("can't be off", REMEDY));
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let remedy = format!("write \"{text}s\" or \"{text}ms\"");
        return Err(Complaint::new("unit missing", remedy));
    }
    match parse_duration(text) {
        Some(span) if span.is_zero() => Err(Complaint::new("zero", REMEDY)),
        Some(span) if span > DURATION_MAX => Err(Complaint::new("over a year", REMEDY)),
        Some(span) => Ok(span),
        None => Err(Complaint::new("not a duration", REMEDY)),
    }
}

/// A time as in [`duration`], or `"off"`.
pub(super) fn duration_or_off(value: &Value) -> Read<Option<Duration>> {
    if value.as_str() == Some("off") {
        return Ok(None);
    }
    duration(value).map(Some)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().ok()?;
    let milliseconds = match unit.trim_start() {
        "ms" => number,
        "s" => number.checked_mul(1000)?,
        "m" | "min" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(milliseconds))
}

/// One of these words.
pub(super) fn choice<T: Copy>(words: &[(&'static str, T)]) -> impl FnOnce(&Value) -> Read<T> {
    move |value| {
        let written = value.as_str().unwrap_or_default();
        if let Some((_, chosen)) = words.iter().find(|(word, _)| *word == written) {
            return Ok(*chosen);
        }
        let remedy = match nearest(written, words.iter().map(|(word, _)| *word)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => {
                let list: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
                format!("write one of {}", list.join(", "))
            }
        };
        Err(Complaint::new("not one of its values", remedy))
    }
}

/// `IP:PORT`.
pub(super) fn listen_addr(value: &Value) -> Read<SocketAddr> {
    let written = text(value)?;
    written.parse().map_err(|_| listen_complaint(&written))
}

fn listen_complaint(written: &str) -> Complaint {
    if written.contains("://") {
        return Complaint::new("a URL, not an address", "write only IP:PORT");
    }
    if written.parse::<std::net::Ipv4Addr>().is_ok() {
        return Complaint::new("port missing", format!("write {written}:8080"));
    }
    if written.parse::<std::net::Ipv6Addr>().is_ok() {
        return Complaint::new("port missing", format!("write [{written}]:8080"));
    }
    match written.rsplit_once(':') {
        Some(("", port)) if port.parse::<u16>().is_ok() => Complaint::new(
            "IP address missing",
            format!("write 0.0.0.0:{port} for every address of this host"),
        ),
        Some((_, port)) if port.parse::<u16>().is_err() => {
            Complaint::new("its port isn't 0 to 65535", "write IP:PORT")
        }
        Some(("localhost", port)) => {
            Complaint::new("a name, not an IP address", format!("write 127.0.0.1:{port}"))
        }
        _ => Complaint::new(
            "not an IP address with a port",
            "write IP:PORT, such as 0.0.0.0:8080",
        ),
    }
}

/// An address as in [`listen_addr`], or `"off"`.
pub(super) fn listen_addr_or_off(value: &Value) -> Read<Option<SocketAddr>> {
    if value.as_str() == Some("off") {
        return Ok(None);
    }
    listen_addr(value).map(Some)
}

/// One entry or a list of them.
pub(super) fn one_or_more<T>(read: impl Fn(&Value) -> Read<T>) -> impl FnOnce(&Value) -> Read<Vec<T>> {
    move |value| match value {
        Value::Array(list) if list.is_empty() => {
            Err(Complaint::new("empty", "give at least one or remove the key"))
        }
        Value::Array(list) => list.iter().map(read).collect(),
        one => Ok(vec![read(one)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    #[test]
    fn durations_have_units_and_bounds() {
        for (text, milliseconds) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1 s", 1000),
        ] {
            let span = duration(&string(text)).expect(text);
            assert_eq!(span, Duration::from_millis(milliseconds), "{text}");
        }
        for text in [
            "",
            "s",
            "-1s",
            "1d",
            "1.5s",
            "0s",
            "9000h",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(duration(&string(text)).is_err(), "{text}");
        }
        assert_eq!(duration_or_off(&string("off")).expect("off"), None);
    }

    #[test]
    fn sizes_have_binary_units_and_bounds() {
        for (text, count) in [
            ("4096", 4096),
            ("64KiB", 65_536),
            ("1 MiB", 1 << 20),
            ("1GiB", 1 << 30),
            ("7B", 7),
        ] {
            assert_eq!(bytes::<u64>(0..=1 << 40)(&string(text)).expect(text), count);
        }
        for text in ["", "KiB", "64KB", "-1", "1.5MiB", "99999999999GiB", "2097152MiB"] {
            assert!(bytes::<u64>(0..=1 << 40)(&string(text)).is_err(), "{text}");
        }
    }
}
