//! Whether a client has got what it's owed.

use std::sync::atomic::Ordering;

use super::answer::Answer;
use super::case::{Case, Fault, Kind, Manners};
use super::live::{Live, Shared};
use super::reader::Reader;
use crate::message::{Framing, Head};

/// How an answer ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By its framing, or by a clean close where the framing is that.
    Complete,
    /// By a clean close before its end.
    Closed,
    /// By a reset.
    Reset,
    /// Nothing came for too long.
    Stalled,
}

/// The statuses of the router's own answers to a request that is at no fault.
const OWN_STATUSES: [u16; 3] = [502, 503, 504];

/// The verdict on an answer; the error says what is wrong. `lenient` = no answer at all is in order, since the
/// client ended first or spoke to an engine itself.
pub(super) fn judge(
    shared: &Shared,
    case: &Case,
    live: &Live,
    reader: &Reader,
    end: End,
    lenient: bool,
) -> Result<(), String> {
    if end == End::Stalled {
        return Err(format!(
            "nothing came for {:?} after {} bytes of the body (head: {})",
            shared.stall_max,
            reader.body.len(),
            reader.head.is_some()
        ));
    }
    let Some(head) = &reader.head else {
        return if lenient {
            Ok(())
        } else {
            Err(format!("no answer: {end:?}"))
        };
    };
    let Some(of) = head.one("x-case") else {
        return own(shared, case, live, head, end, lenient);
    };
    if of != case.id.to_string() {
        return Err(format!("the answer to case {of}"));
    }
    if head.status() != case.answer.status {
        return refusal(shared, case, reader, head, end, lenient);
    }
    engines(shared, case, live, reader, end, lenient)
}

/// The router's own answer.
fn own(
    shared: &Shared,
    case: &Case,
    live: &Live,
    head: &Head,
    end: End,
    lenient: bool,
) -> Result<(), String> {
    if lenient {
        return Ok(());
    }
    if end != End::Complete {
        return Err(format!("the router's own answer is cut: {end:?}"));
    }
    if !OWN_STATUSES.contains(&head.status()) {
        return Err(format!("the router itself answers {}", head.start));
    }
    let explained = live.died_early.load(Ordering::Acquire)
        || live.cut.load(Ordering::Acquire)
        || matches!(case.fault, Fault::Early);
    if explained {
        shared.counts.own.one();
    } else {
        shared.counts.own_unexplained.one();
    }
    Ok(())
}

/// An engine's refusal, passed on.
fn refusal(
    shared: &Shared,
    case: &Case,
    reader: &Reader,
    head: &Head,
    end: End,
    lenient: bool,
) -> Result<(), String> {
    if case.fault != Fault::Refuses(head.status()) {
        return Err(format!(
            "status {} instead of {}",
            head.status(),
            case.answer.status
        ));
    }
    let (_, body) = Answer::refusal(case.id, head.status());
    let whole = case.method == "HEAD" || reader.body == body;
    if !lenient && (end != End::Complete || !whole) {
        return Err(format!("an engine's refusal is cut or changed: {end:?}"));
    }
    shared.counts.refusals.one();
    Ok(())
}

/// The answer of the case's engine.
fn engines(
    shared: &Shared,
    case: &Case,
    live: &Live,
    reader: &Reader,
    end: End,
    lenient: bool,
) -> Result<(), String> {
    let want: &[u8] = if case.method == "HEAD" || case.kind == Kind::Tunnel {
        &[]
    } else {
        &case.answer.body
    };
    if !want.starts_with(&reader.body) {
        let at = want.iter().zip(&reader.body).take_while(|(a, b)| a == b).count();
        return Err(format!(
            "other bytes at {at} of {} (got {} bytes, {end:?})",
            want.len(),
            reader.body.len()
        ));
    }
    let whole = reader.body.len() == want.len();
    let cut = live.cut.load(Ordering::Acquire);
    match end {
        End::Complete if whole => {
            if case.client_framing() == Framing::Chunked && reader.trailers != case.answer.trailers {
                return Err(format!("other trailers: {:?}", reader.trailers));
            }
            shared.counts.complete.one();
            shared.counts.body_bytes.add(want.len() as u64);
            Ok(())
        }
        End::Complete => {
            // An engine that closes cleanly inside a body that is ended by the close has ended it.
            let ended = case.answer.framing == Framing::Close && cut && !case.engine_resets;
            if ended || (lenient && reader.until_close()) {
                return Ok(());
            }
            Err(format!(
                "a clean end after {} of {} bytes",
                reader.body.len(),
                want.len()
            ))
        }
        _ if lenient => Ok(()),
        _ if cut || case.manners == Manners::Never => {
            shared.counts.cut.one();
            Ok(())
        }
        _ => Err(format!(
            "cut without a fault after {} of {} bytes: {end:?}",
            reader.body.len(),
            want.len()
        )),
    }
}
