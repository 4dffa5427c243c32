//! Simulated engines, as `warmpath engine` runs them.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::binary;
use crate::client::Client;
use crate::log::Log;

/// A process with simulated engines, killed on drop.
#[derive(Debug)]
pub struct Engines {
    child: Child,
    addresses: Vec<SocketAddr>,
}

impl Engines {
    /// Starts `count` engines with more words of the command line.
    ///
    /// # Panics
    /// Where they don't listen.
    #[must_use]
    #[track_caller]
    pub fn start(count: usize, arguments: &[&str]) -> Engines {
        let mut child = Command::new(binary::warmpath())
            .args(["engine", "--listen", "127.0.0.1:0", "--count", &count.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("warmpath starts");
        let log = Log::follow(child.stdout.take().expect("is piped"));
        let mut engines = Engines {
            child,
            addresses: Vec::new(),
        };
        for index in 0..count {
            let url = log.wait_for(&format!("engine {index} listening on http://"));
            let url = url.expect("the engine listens");
            engines.addresses.push(url.parse().expect("an address"));
        }
        engines
    }

    /// Where they listen.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sets the fault of one engine, as `POST /fault` takes it.
    ///
    /// # Panics
    /// Where the engine refuses it.
    #[track_caller]
    pub fn fault(&self, index: usize, json: &str) {
        let mut client = Client::connect(self.addresses[index]);
        let request = format!(
            "POST /fault HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{json}",
            json.len()
        );
        client.send(request.as_bytes());
        let response = client.response("POST");
        assert_eq!(
            response.status(),
            200,
            "{}",
            String::from_utf8_lossy(&response.body)
        );
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
