//! Runs a test in a mount namespace of its own.

/// Runs `work` in a new mount namespace from which no mount propagates out.
///
/// A namespace belongs to a thread: `work` runs on a new one and on the threads it starts.
pub(crate) fn in_namespace(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = std::thread::spawn(move || -> Result<(), String> {
        use nix::mount::{MsFlags, mount};
        use nix::sched::{CloneFlags, unshare};
        unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| format!("unshare(CLONE_NEWNS): {errno}"))?;
        let flags = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
        mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
            .map_err(|errno| format!("making / private: {errno}"))?;
        work();
        Ok(())
    });
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
