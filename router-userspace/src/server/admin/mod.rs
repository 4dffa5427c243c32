//! The admin pages, on the control thread.

mod token;

pub use token::{AdminToken, AdminTokenError};

/// Why a listener couldn't be had, and what to do about it.
pub(super) fn listen_reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another process listens there; stop it or choose another port".to_owned()
        }
        std::io::ErrorKind::AddrNotAvailable => {
            "not an address of this host; choose one that `ip address` shows".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "not permitted; choose a port above 1023 or grant CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => format!("can't listen ({error})"),
    }
}
