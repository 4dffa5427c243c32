//! Traces: JSON lines, plain or gzip.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;

use flate2::read::MultiGzDecoder;
use serde::Deserialize;

/// Tokens of a block where a line doesn't say.
const BLOCK_TOKENS_DEFAULT: u32 = 512;
/// The first bytes of gzip.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes of a line at most.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// When it comes, in ms from the beginning of the trace; in a session that of the first turn.
    pub at_ms: u64,
    /// How long after the turn before it it's sent.
    pub think_ms: u64,
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// The block hashes as runs of consecutive numbers: first, count.
    runs: Box<[(u64, u32)]>,
}

impl TraceRequest {
    /// Chained hash of each block, the partial last one included.
    #[must_use]
    pub fn blocks(&self) -> Vec<u64> {
        let run = |&(first, count): &(u64, u32)| first..first.saturating_add(u64::from(count));
        self.runs.iter().flat_map(run).collect()
    }

    /// Hash of the block at `place`, or of the last one before it.
    pub(super) fn block(&self, place: usize) -> Option<u64> {
        let mut left = place as u64;
        for &(first, count) in &self.runs {
            if left < u64::from(count) {
                return Some(first + left);
            }
            left -= u64::from(count);
        }
        let last = self.runs.last()?;
        Some(last.0 + u64::from(last.1.saturating_sub(1)))
    }
}

/// A trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Tokens of a block.
    pub block_tokens: u32,
    /// The requests; a session's follow one another.
    pub requests: Vec<TraceRequest>,
    /// Each session's requests, in the order of their beginnings; empty where the trace has times instead.
    pub sessions: Vec<Range<usize>>,
}

/// Why a trace can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] std::io::Error),
    /// A line isn't what it should be.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There's no request in it.
    #[error("it has no requests")]
    Empty,
}

#[derive(Deserialize)]
struct Line {
    timestamp: Option<f64>,
    session_id: Option<u64>,
    session_start_ms: Option<f64>,
    think_ms: Option<f64>,
    input_length: u32,
    output_length: u32,
    hash_ids: Option<Vec<u64>>,
    hash_runs: Option<Vec<(u64, u32)>>,
    block_size: Option<u32>,
}

impl Trace {
    /// Reads a trace in either form, gzip or plain.
    ///
    /// Lines with `timestamp` (ms) come at that time; lines with `session_id`, `session_start_ms` and `think_ms`
    /// are turns, each sent `think_ms` after the one before it is complete. Both have `input_length`,
    /// `output_length`, and `hash_ids` or `hash_runs` (`[[first, count], …]`): equal ids mean equal blocks with
    /// equal predecessors. `block_size` is in tokens, 512 where it's absent.
    ///
    /// # Errors
    /// [`TraceError`] at the first line that is wrong.
    pub fn read(source: impl Read) -> Result<Trace, TraceError> {
        let mut source = BufReader::new(source);
        if source.fill_buf()?.starts_with(&GZIP_MAGIC) {
            Trace::read_lines(BufReader::new(MultiGzDecoder::new(source)))
        } else {
            Trace::read_lines(source)
        }
    }

    fn read_lines(mut source: impl BufRead) -> Result<Trace, TraceError> {
        let mut reading = Reading::default();
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            if source.by_ref().take(LINE_BYTES_MAX).read_line(&mut text)? == 0 {
                break;
            }
            if !text.trim().is_empty() {
                reading
                    .line(&text)
                    .map_err(|reason| TraceError::Line { line, reason })?;
            }
        }
        reading.finish()
    }

    /// Blocks at the front that more than half of the requests have in common: a text that everybody sends tells
    /// nobody apart.
    pub(super) fn common_blocks(&self) -> usize {
        let mut among: Vec<&TraceRequest> = self.requests.iter().collect();
        for place in 0.. {
            let mut counts: HashMap<u64, usize> = HashMap::new();
            let longer = |request: &&TraceRequest| {
                request.runs.iter().map(|run| run.1 as usize).sum::<usize>() > place
            };
            among.retain(longer);
            for request in &among {
                *counts.entry(request.block(place).unwrap_or(0)).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|&(hash, count)| (count, hash));
            match most {
                Some((hash, count)) if 2 * count > self.requests.len() => {
                    among.retain(|request| request.block(place) == Some(hash));
                }
                _ => return place,
            }
        }
        0
    }
}

#[derive(Default)]
struct Reading {
    block_tokens: Option<u32>,
    timed: Vec<TraceRequest>,
    sessions: Vec<(f64, Vec<TraceRequest>)>,
    known: HashMap<u64, usize>,
}

impl Reading {
    fn line(&mut self, text: &str) -> Result<(), String> {
        let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let block_tokens = line.block_size.unwrap_or(BLOCK_TOKENS_DEFAULT);
        if block_tokens == 0 || *self.block_tokens.get_or_insert(block_tokens) != block_tokens {
            return Err(format!(
                "block_size {block_tokens}; one number above 0 in all lines, please"
            ));
        }
        let runs = match (line.hash_ids, line.hash_runs) {
            (Some(ids), None) => runs_of(&ids),
            (None, Some(runs)) => runs,
            _ => return Err("hash_ids or hash_runs, one of them".to_owned()),
        };
        let count: u64 = runs.iter().map(|run| u64::from(run.1)).sum();
        let most = line.input_length.div_ceil(block_tokens);
        if count > u64::from(most) {
            return Err(format!(
                "{count} blocks; {} tokens have {most}",
                line.input_length
            ));
        }
        let at_ms = line.timestamp.or(line.session_start_ms).unwrap_or(0.0);
        let request = TraceRequest {
            at_ms: at_ms.max(0.0) as u64,
            think_ms: line.think_ms.unwrap_or(0.0).max(0.0) as u64,
            input_tokens: line.input_length,
            output_tokens: line.output_length,
            runs: runs.into(),
        };
        match line.session_id {
            None if line.timestamp.is_none() => Err("timestamp or session_id, one of them".to_owned()),
            None => {
                self.timed.push(request);
                Ok(())
            }
            Some(id) => {
                let sessions = &mut self.sessions;
                let at = *self.known.entry(id).or_insert_with(|| {
                    sessions.push((at_ms, Vec::new()));
                    sessions.len() - 1
                });
                sessions[at].1.push(request);
                Ok(())
            }
        }
    }

    fn finish(mut self) -> Result<Trace, TraceError> {
        let mixed = !self.timed.is_empty() && !self.sessions.is_empty();
        if mixed {
            let reason = "lines with and without session_id in one trace".to_owned();
            return Err(TraceError::Line { line: 1, reason });
        }
        self.sessions.sort_by(|left, right| left.0.total_cmp(&right.0));
        self.timed.sort_by_key(|request| request.at_ms);
        let mut requests = self.timed;
        let mut sessions = Vec::new();
        for (_, turns) in self.sessions {
            sessions.push(requests.len()..requests.len() + turns.len());
            requests.extend(turns);
        }
        if requests.is_empty() {
            return Err(TraceError::Empty);
        }
        Ok(Trace {
            block_tokens: self.block_tokens.unwrap_or(BLOCK_TOKENS_DEFAULT),
            requests,
            sessions,
        })
    }
}

fn runs_of(ids: &[u64]) -> Vec<(u64, u32)> {
    let mut runs: Vec<(u64, u32)> = Vec::new();
    for &id in ids {
        match runs.last_mut() {
            Some((first, count)) if id == first.wrapping_add(u64::from(*count)) => *count += 1,
            _ => runs.push((id, 1)),
        }
    }
    runs
}
