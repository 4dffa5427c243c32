//! The `warmpath` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    router_userspace::cli::main()
}
