//! L4 listeners of `warmpath serve`: what passes, where it goes, and how it ends.

mod ends;
mod passing;
mod proxy_headers;
mod routing;

use warmpath_tests::TcpBackend;

/// A `[[tcp]]` section called `name` with these keys (a TOML line each) before these backends.
fn section(name: &str, keys: &str, backends: &[&TcpBackend]) -> String {
    let mut text = format!("[[tcp]]\nlisten = \"127.0.0.1:0\"\nname = \"{name}\"\n{keys}\n");
    for (index, backend) in backends.iter().enumerate() {
        let address = backend.address();
        text += &format!("[[tcp.backend]]\naddr = \"{address}\"\nname = \"b{index}\"\n");
    }
    text
}
