//! The `warmpath` command as scripts meet it: messages and exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(30);

fn warmpath(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warmpath"));
    command.args(args).env_remove("WARMPATH_LOG").stdin(Stdio::null());
    command
}

/// Runs to the end; kills and panics at the deadline.
fn run(args: &[&str]) -> (i32, String, String) {
    let child = warmpath(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("the binary starts");
    let deadline = Instant::now() + DEADLINE;
    while child.try_wait().expect("waited").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{args:?} doesn't end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("output");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// A file that goes with the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> TempFile {
        let path = std::env::temp_dir().join(format!("warmpath-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("written");
        TempFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn serve_without_backends_is_one_line_and_64() {
    let (code, stdout, stderr) = run(&["serve"]);
    assert_eq!((code, stdout.as_str()), (64, ""));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("--backend http://HOST:PORT"), "{stderr}");
    let empty = TempFile::new("empty.toml", "");
    let (code, _, stderr) = run(&["serve", "--config", empty.path()]);
    assert_eq!((code, stderr.lines().count()), (64, 1), "{stderr}");
}

#[test]
fn usage_errors_are_64_and_help_is_0() {
    assert_eq!(run(&["serve", "--no-such-flag"]).0, 64);
    assert_eq!(run(&["no-such-command"]).0, 64);
    assert_eq!(run(&[]).0, 64);
    assert_eq!(run(&["check"]).0, 64);
    assert_eq!(run(&["--help"]).0, 0);
    assert_eq!(run(&["serve", "--help"]).0, 0);
    assert_eq!(run(&["--version"]).0, 0);
    assert_eq!(run(&["serve", "--backend", "http://127.0.0.1"]).0, 64);
    assert_eq!(run(&["serve", "--config", "/no/such/file"]).0, 64);
}

#[test]
fn check_reports_every_fault_and_accepts_its_own_example() {
    let (code, example, _) = run(&["check", "--example"]);
    assert_eq!(code, 0);
    let good = TempFile::new("good.toml", &example);
    let (code, stdout, stderr) = run(&["check", "--config", good.path()]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("ok: 2 backends, "), "{stdout}");
    let bad = TempFile::new("bad.toml", "worker = 1\n[[backend]]\naddr = \"10.0.0.5\"\n");
    let (code, stdout, stderr) = run(&["check", "--config", bad.path()]);
    assert_eq!((code, stdout.as_str()), (64, ""));
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    assert!(
        lines[0].ends_with("bad.toml: worker = 1: unknown key; did you mean workers?"),
        "{stderr}"
    );
    let port = "bad.toml: backend[0].addr = \"10.0.0.5\": port missing; write 10.0.0.5:8000";
    assert!(lines[1].ends_with(port), "{stderr}");
}

#[test]
fn an_admin_port_in_use_is_one_line_with_its_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("bound").to_string();
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--backend",
        "http://127.0.0.1:1",
        "--admin",
        &addr,
    ];
    let (code, _, stderr) = run(&args);
    assert_eq!(code, 1, "{stderr}");
    let expected = format!(
        "warmpath serve: admin = \"{addr}\": another process listens there; stop it or choose another port, or --admin off"
    );
    assert_eq!(stderr.trim_end(), expected);
}

/// A serving process, killed with the test.
struct Serving {
    child: Child,
    admin: SocketAddr,
}

impl Serving {
    fn start(backend: SocketAddr) -> Serving {
        let backend = format!("http://{backend}");
        let args = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--backend",
            &backend,
            "--admin",
            "127.0.0.1:0",
        ];
        let child = warmpath(&args).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let admin = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                Some(
                    line.split_once("admin on http://")?
                        .1
                        .trim_end_matches('/')
                        .to_owned(),
                )
            })
            .expect("it says where the admin pages are");
        // Read to the end, so that no later line finds the pipe closed.
        std::thread::spawn(move || lines.for_each(drop));
        let admin = admin.parse().expect("an address");
        Serving { child, admin }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_probes_its_backend_shows_it_and_ends_with_0_on_sigterm() {
    // Nothing listens there any more.
    let backend = TcpListener::bind("127.0.0.1:0")
        .and_then(|gone| gone.local_addr())
        .expect("a port");
    let mut serving = Serving::start(backend);
    let deadline = Instant::now() + DEADLINE;
    while !serving.get("/readyz").ends_with("no healthy backend\n") {
        assert!(Instant::now() < deadline, "the dead backend isn't found");
        std::thread::sleep(Duration::from_millis(20));
    }
    let page = serving.get("/metrics");
    assert!(
        page.contains("warmpath_health_ignored 1"),
        "the only backend is kept: {page}"
    );
    assert!(serving.get("/healthz").starts_with("HTTP/1.1 200 "));
    let pid = serving.child.id().to_string();
    let signalled = Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .expect("kill runs");
    assert!(signalled.success());
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = serving.child.try_wait().expect("waited") {
            break status;
        }
        assert!(Instant::now() < deadline, "it doesn't stop");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
}
