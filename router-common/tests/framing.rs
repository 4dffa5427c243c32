//! The framing state machine against a naive parser, over arbitrary splits.

use proptest::prelude::*;
use router_common::framing::{
    CHUNK_EXTENSION_BYTES_MAX, Framing, FramingError, Piece, Progress, TRAILERS_BYTES_MAX, is_one_chunk,
};

/// What a parse of a whole input found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parse {
    payload: Vec<u8>,
    trailers: Vec<u8>,
    consumed: usize,
    chunks: u64,
    progress: Progress,
}

/// Runs the state machine over `input` in pieces that end at `cuts`.
fn parse(mut framing: Framing, input: &[u8], cuts: &[usize]) -> Parse {
    let (mut payload, mut trailers, mut consumed) = (Vec::new(), Vec::new(), 0);
    let ends = cuts.iter().copied().chain([input.len()]);
    for end in ends {
        while consumed < end {
            let rest = &input[consumed..end];
            match framing.next_piece(rest) {
                Piece::Payload(n) => {
                    payload.extend_from_slice(&rest[..n]);
                    consumed += n;
                }
                Piece::Trailers(n) => {
                    trailers.extend_from_slice(&rest[..n]);
                    consumed += n;
                }
                Piece::Framing(n) => consumed += n,
                Piece::More | Piece::Done | Piece::Failed(_) => break,
            }
        }
    }
    Parse {
        payload,
        trailers,
        consumed,
        chunks: framing.chunks(),
        progress: framing.progress(),
    }
}

fn parse_whole(input: &[u8]) -> Parse {
    parse(Framing::chunked(), input, &[])
}

/// The naive twin: whole lines, strings and the standard library's number parser. `Err(true)` = malformed,
/// `Err(false)` = it ends too early to tell.
fn naive(input: &[u8]) -> Result<Parse, bool> {
    let (mut payload, mut trailers, mut at, mut chunks) = (Vec::new(), Vec::new(), 0, 0);
    let line_at = |at: usize| -> Result<&[u8], bool> {
        let rest = &input[at..];
        let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(false)?;
        if rest[..end].iter().any(|byte| *byte == b'\r' || *byte == b'\n') {
            return Err(true);
        }
        Ok(&rest[..end])
    };
    let text = |bytes: &[u8]| bytes.iter().all(|b| *b == b'\t' || (*b >= 32 && *b != 127));
    loop {
        let line = line_at(at)?;
        at += line.len() + 2;
        let (size, extension) = match line.iter().position(|byte| *byte == b';') {
            Some(semicolon) => {
                let blanks = line[..semicolon]
                    .iter()
                    .rev()
                    .take_while(|b| **b == b' ' || **b == b'\t')
                    .count();
                line.split_at(semicolon - blanks)
            }
            None => (line, &b""[..]),
        };
        let digits = size.iter().all(u8::is_ascii_hexdigit) && (1..=16).contains(&size.len());
        if !digits || !text(extension) || extension.len() > CHUNK_EXTENSION_BYTES_MAX as usize {
            return Err(true);
        }
        let size = u64::from_str_radix(std::str::from_utf8(size).expect("digits"), 16).map_err(|_| true)?;
        if size == 0 {
            break;
        }
        let end = at as u64 + size;
        if end + 2 > input.len() as u64 {
            return Err(false);
        }
        payload.extend_from_slice(&input[at..end as usize]);
        at = end as usize + 2;
        if &input[at - 2..at] != b"\r\n" {
            return Err(true);
        }
        chunks += 1;
    }
    loop {
        let line = line_at(at)?;
        let start = at;
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(Parse {
                payload,
                trailers,
                consumed: at,
                chunks,
                progress: Progress::Done,
            });
        }
        trailers.extend_from_slice(&input[start..at]);
        let colon = line.iter().position(|byte| *byte == b':').ok_or(true)?;
        let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
        let good = colon > 0 && line[..colon].iter().all(token) && text(&line[colon..]);
        if !good || trailers.len() > TRAILERS_BYTES_MAX as usize {
            return Err(true);
        }
    }
}

fn chunk() -> impl Strategy<Value = Vec<u8>> {
    let extension = prop_oneof![
        8 => Just(Vec::new()),
        1 => Just(b";a=b".to_vec()),
        1 => Just(b" ; q=\"x;y\"".to_vec()),
    ];
    (
        prop::collection::vec(any::<u8>(), 1..40),
        0..3usize,
        any::<bool>(),
        extension,
    )
        .prop_map(|(data, zeros, upper, extension)| {
            let mut out = vec![b'0'; zeros];
            let size = data.len();
            out.extend(
                if upper {
                    format!("{size:X}")
                } else {
                    format!("{size:x}")
                }
                .bytes(),
            );
            out.extend(extension);
            out.extend(b"\r\n");
            out.extend(data);
            out.extend(b"\r\n");
            out
        })
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let trailer = prop_oneof![
        Just(&b"x-sum: 1\r\n"[..]),
        Just(&b"E:\r\n"[..]),
        Just(&b"a:b\tc\xff\r\n"[..])
    ];
    (
        prop::collection::vec(chunk(), 0..6),
        prop::collection::vec(trailer, 0..3),
        prop::collection::vec(any::<u8>(), 0..8),
    )
        .prop_map(|(chunks, trailers, behind)| {
            let mut out = chunks.concat();
            out.extend(b"0\r\n");
            out.extend(trailers.concat());
            out.extend(b"\r\n");
            out.extend(behind);
            out
        })
}

/// Bytes that hit the grammar's edges.
fn edge_byte() -> impl Strategy<Value = u8> {
    prop_oneof![prop::sample::select(&b"\r\n;:0 \taFg\0\x7f\""[..]), any::<u8>()]
}

/// A message with up to three bytes replaced, inserted or removed, perhaps cut short.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), 0..3u8, edge_byte());
    (
        message(),
        prop::collection::vec(edit, 0..4),
        prop::option::weighted(0.2, any::<prop::sample::Index>()),
    )
        .prop_map(|(mut bytes, edits, cut)| {
            for (index, kind, byte) in edits {
                if bytes.is_empty() {
                    break;
                }
                let at = index.index(bytes.len());
                match kind {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => drop(bytes.remove(at)),
                }
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn agrees_with_the_naive_parser(input in mangled()) {
        let found = parse_whole(&input);
        match naive(&input) {
            Ok(expected) => prop_assert_eq!(found, expected),
            Err(true) => prop_assert!(matches!(found.progress, Progress::Failed(_)), "{:?}", found),
            // The state machine may see a fault before the line is whole.
            Err(false) => prop_assert!(found.progress != Progress::Done, "{:?}", found),
        }
    }

    #[test]
    fn every_two_way_split_gives_the_same_result(input in mangled()) {
        let whole = parse_whole(&input);
        for cut in 0..=input.len() {
            prop_assert_eq!(&parse(Framing::chunked(), &input, &[cut]), &whole, "cut at {}", cut);
        }
    }

    #[test]
    fn byte_by_byte_gives_the_same_result(input in mangled()) {
        let cuts: Vec<usize> = (0..input.len()).collect();
        prop_assert_eq!(parse(Framing::chunked(), &input, &cuts), parse_whole(&input));
    }

    #[test]
    fn arbitrary_splits_give_the_same_result(input in mangled(), mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(parse(Framing::chunked(), &input, &cuts), parse_whole(&input));
    }

    #[test]
    fn advance_consumes_what_the_pieces_sum_to(input in mangled()) {
        let pieces = parse_whole(&input);
        let step = Framing::chunked().advance(&input);
        prop_assert_eq!((step.consumed, step.progress), (pieces.consumed, pieces.progress));
    }

    #[test]
    fn a_length_takes_exactly_its_bytes(length in 0..200u64, input in prop::collection::vec(any::<u8>(), 0..200)) {
        let found = parse(Framing::length(length), &input, &[input.len() / 2]);
        let expected = input.len().min(length as usize);
        prop_assert_eq!(&found.payload[..], &input[..expected]);
        prop_assert_eq!(found.progress == Progress::Done, length as usize <= input.len());
    }

    #[test]
    fn the_straight_line_agrees_with_the_state_machine(input in prop_oneof![chunk(), mangled()]) {
        prop_assume!(input.len() >= 2);
        let mut head = [0u8; 8];
        let known = input.len().min(8);
        head[..known].copy_from_slice(&input[..known]);
        let tail = [input[input.len() - 2], input[input.len() - 1]];
        let straight = is_one_chunk(head, tail, input.len() as u64);
        let mut framing = Framing::chunked();
        let step = framing.advance(&input);
        let one = step.consumed == input.len() && framing.is_at_chunk_start() && framing.chunks() == 1;
        if straight {
            prop_assert!(one, "claimed one chunk: {:?}", step);
            let mut skipped = Framing::chunked();
            skipped.skip_one_chunk();
            prop_assert_eq!(framing, skipped);
        } else if one {
            // It may decline, but only for the reasons it gives: an extension or a long size.
            let line = input.iter().position(|b| *b == b'\r').expect("a line end");
            prop_assert!(line > 6 || input[..line].iter().any(|b| !b.is_ascii_hexdigit()));
        }
    }
}

fn error_of(input: &[u8]) -> Option<FramingError> {
    match parse_whole(input).progress {
        Progress::Failed(error) => Some(error),
        _ => None,
    }
}

#[test]
fn malformed_bodies_are_refused_with_their_reason() {
    let cases: [(&[u8], FramingError); 17] = [
        (b"\r\n", FramingError::ChunkSize),
        (b"g\r\n", FramingError::ChunkSize),
        (b"0x5\r\n", FramingError::ChunkSize),
        (b"+5\r\n", FramingError::ChunkSize),
        (b" 5\r\n", FramingError::ChunkSize),
        (b"5 \r\n", FramingError::ChunkSize),
        (b"00000000000000000", FramingError::ChunkSizeTooLong),
        (b"5\n", FramingError::LineEnd),
        (b"5\r\r", FramingError::LineEnd),
        (b"5;a\n", FramingError::LineEnd),
        (b"5;\0", FramingError::ChunkExtension),
        (b"1\r\naXY", FramingError::LineEnd),
        (b"1\r\na\n", FramingError::LineEnd),
        (b"0\r\n\n", FramingError::LineEnd),
        (b"0\r\n folded", FramingError::Trailer),
        (b"0\r\nname value\r\n", FramingError::Trailer),
        (b"0\r\na:b\n", FramingError::LineEnd),
    ];
    for (input, expected) in cases {
        assert_eq!(
            error_of(input),
            Some(expected),
            "{:?}",
            String::from_utf8_lossy(input)
        );
    }
}

#[test]
fn sixteen_digits_fill_the_size_without_overflow() {
    let found = parse_whole(b"ffffffffffffffff\r\nabc");
    assert_eq!(
        (found.payload.as_slice(), found.progress),
        (&b"abc"[..], Progress::More)
    );
}

#[test]
fn extensions_and_trailers_end_at_their_bounds() {
    let extension = |n: usize| [b"1;".to_vec(), vec![b'a'; n - 1], b"\r\n".to_vec()].concat();
    assert_eq!(error_of(&extension(CHUNK_EXTENSION_BYTES_MAX as usize)), None);
    assert_eq!(
        error_of(&extension(CHUNK_EXTENSION_BYTES_MAX as usize + 1)),
        Some(FramingError::ChunkExtensionTooLong)
    );
    let trailers = |n: usize| [b"0\r\na:".to_vec(), vec![b'a'; n - 4], b"\r\n\r\n".to_vec()].concat();
    assert_eq!(
        parse_whole(&trailers(TRAILERS_BYTES_MAX as usize)).progress,
        Progress::Done
    );
    assert_eq!(
        error_of(&trailers(TRAILERS_BYTES_MAX as usize + 1)),
        Some(FramingError::TrailersTooLong)
    );
}

#[test]
fn bytes_behind_the_end_stay() {
    let found = parse_whole(b"2\r\nhi\r\n0\r\nx: y\r\n\r\nHTTP/1.1 200 OK");
    assert_eq!(found.payload, b"hi");
    assert_eq!(found.trailers, b"x: y\r\n");
    assert_eq!((found.consumed, found.progress), (18, Progress::Done));
}

#[test]
fn a_failed_body_stays_failed() {
    let mut framing = Framing::chunked();
    let first = framing.advance(b"zz");
    assert_eq!(framing.advance(b"5\r\nhello"), first);
}

#[test]
fn no_body_is_done_and_an_open_one_never_is() {
    assert_eq!(Framing::none().next_piece(b"abc"), Piece::Done);
    assert_eq!(Framing::default(), Framing::length(0));
    let mut open = Framing::until_close();
    assert_eq!(open.advance(b"abc").consumed, 3);
    assert_eq!(open.progress(), Progress::More);
}
