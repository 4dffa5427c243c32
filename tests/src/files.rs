//! Files that a test makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file of its own in the folder for temporary ones, removed on drop.
#[derive(Debug)]
pub struct TempFile {
    path: PathBuf,
}

impl TempFile {
    /// A name with this ending on which there's no file yet.
    #[must_use]
    pub fn name(extension: &str) -> TempFile {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warmpath-test-{}-{number}.{extension}", std::process::id());
        TempFile {
            path: std::env::temp_dir().join(name),
        }
    }

    /// A file with this text.
    ///
    /// # Panics
    /// Where it can't be written.
    #[must_use]
    pub fn with(extension: &str, text: &str) -> TempFile {
        let file = TempFile::name(extension);
        fs::write(&file.path, text).expect("a file is written");
        file
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = fs::remove_file(&self.path);
    }
}
