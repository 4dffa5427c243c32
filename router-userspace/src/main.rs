//! The binary `warmpath`.

use std::process::ExitCode;

fn main() -> ExitCode {
    router_userspace::cli::main()
}
