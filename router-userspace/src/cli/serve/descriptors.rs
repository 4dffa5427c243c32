//! Descriptors: every client takes two, and the default soft limit of 1024 is for programs that use select.

/// Raises the soft limit of open files to the hard one; what can't be raised is logged and lived with.
pub(super) fn raise_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live rlimit that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        tracing::warn!(error = %std::io::Error::last_os_error(), "RLIMIT_NOFILE can't be read");
        return;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a live rlimit that the call only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        tracing::warn!(before, error = %std::io::Error::last_os_error(), "RLIMIT_NOFILE can't be raised");
    }
}
