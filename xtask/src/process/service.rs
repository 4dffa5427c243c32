//! A child that runs beside: its output in a log file, its readiness by a line of it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::groups::Group;
use super::{POLL, shown};

/// How long a service may take to say that it's ready.
const READY: Duration = Duration::from_secs(30);
/// Lines of a log that are shown on a failure.
const TAIL_LINES: usize = 30;

/// A running service, ended on drop.
#[derive(Debug)]
pub(crate) struct Service {
    group: Group,
    name: String,
    log: PathBuf,
}

/// How a service ended before it was ready.
#[derive(Debug)]
pub(crate) struct EndedEarly {
    /// Its exit code; none where a signal ended it.
    pub(crate) code: Option<i32>,
    /// The last line it printed.
    pub(crate) last_line: String,
}

impl Service {
    /// Starts `command` with both output streams into `log`.
    ///
    /// # Errors
    /// Where the log can't be made or the command can't start.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path) -> Result<Service> {
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let out = File::create(log).with_context(|| log.display().to_string())?;
        let err = out.try_clone().context("log")?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let group = Group::spawn(command).with_context(|| shown(command))?;
        Ok(Service {
            group,
            name: name.to_owned(),
            log: log.to_owned(),
        })
    }

    /// Waits for a line with `marker` and gives the word that follows it, a URL without its last slash.
    ///
    /// # Errors
    /// Where the line doesn't come within [`READY`] or the service ends.
    pub(crate) fn wait_for_line(&mut self, marker: &str) -> Result<String> {
        match self.wait_for_line_or_end(marker)? {
            Ok(found) => Ok(found),
            Err(ended) => bail!(
                "{} ended with code {:?} before it was ready\n{}",
                self.name,
                ended.code,
                self.tail()
            ),
        }
    }

    /// Like [`Service::wait_for_line`] for a service that may refuse to start.
    ///
    /// # Errors
    /// Where neither the line nor the end comes within [`READY`].
    pub(crate) fn wait_for_line_or_end(&mut self, marker: &str) -> Result<Result<String, EndedEarly>> {
        let deadline = Instant::now() + READY;
        loop {
            // The status first: what an ended service said is all in the log.
            let ended = self.group.child().try_wait().context("status")?;
            let text = self.log_text();
            if let Some(found) = text.lines().find_map(|line| after(line, marker)) {
                return Ok(Ok(found));
            }
            if let Some(status) = ended {
                let last = text.lines().rfind(|line| !line.trim().is_empty());
                return Ok(Err(EndedEarly {
                    code: status.code(),
                    last_line: last.unwrap_or("it printed nothing").to_owned(),
                }));
            }
            if Instant::now() > deadline {
                bail!(
                    "{}: no line with {marker:?} in {} s\n{}",
                    self.name,
                    READY.as_secs(),
                    self.tail()
                );
            }
            thread::sleep(POLL);
        }
    }

    /// An error where the service has ended.
    ///
    /// # Errors
    /// Exactly then, with the end of its log.
    pub(crate) fn must_be_running(&mut self) -> Result<()> {
        match self.group.child().try_wait().context("status")? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}\n{}", self.name, self.tail()),
        }
    }

    /// Whether it succeeded, once it has ended.
    ///
    /// # Errors
    /// Where its status can't be read.
    pub(crate) fn ended(&mut self) -> Result<Option<bool>> {
        let status = self.group.child().try_wait().context("status")?;
        Ok(status.map(|status| status.success()))
    }

    /// The end of its log, with a heading.
    pub(crate) fn tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!(
            "--- {} ({})\n{}",
            self.name,
            self.log.display(),
            lines[from..].join("\n")
        )
    }

    /// Its pid, which is its process group's id.
    pub(crate) fn id(&self) -> i32 {
        self.group.id()
    }

    /// Lets it live on when xtask ends.
    pub(crate) fn leave_running(self) {
        self.group.leave_running();
    }

    fn log_text(&self) -> String {
        fs::read(&self.log).map_or_else(
            |_| String::new(),
            |text| String::from_utf8_lossy(&text).into_owned(),
        )
    }
}

fn after(line: &str, marker: &str) -> Option<String> {
    let (_, rest) = line.split_once(marker)?;
    let word = rest.split_whitespace().next().unwrap_or_default();
    Some(word.trim_end_matches('/').to_owned())
}

/// A loopback port that was free a moment ago, for programs that can't choose one themselves.
///
/// # Errors
/// Where there's none.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("free port")?;
    Ok(listener.local_addr().context("free port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("warmpath-xtask-{}-{name}.log", std::process::id()))
    }

    #[test]
    fn a_ready_line_gives_the_word_behind_its_marker() {
        let log = log("ready");
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo x listening on http://127.0.0.1:7 y >&2; exec sleep 600",
        ]);
        let mut service = Service::start("s", &mut command, &log).expect("starts");
        assert_eq!(
            service.wait_for_line("listening on ").expect("ready"),
            "http://127.0.0.1:7"
        );
        service.must_be_running().expect("runs");
        drop(service);
        fs::remove_file(log).expect("the log was written");
    }

    #[test]
    fn a_service_that_ends_early_says_its_code_and_last_line() {
        let log = log("early");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no kernel path; exit 69"]);
        let mut service = Service::start("s", &mut command, &log).expect("starts");
        let ended = service
            .wait_for_line_or_end("listening on ")
            .expect("in time")
            .expect_err("ended");
        assert_eq!(
            (ended.code, ended.last_line.as_str()),
            (Some(69), "no kernel path")
        );
        fs::remove_file(log).expect("the log was written");
    }
}
