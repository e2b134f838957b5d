//! The reporters of a run: each gets every event until it fails.

use crate::event::Event;
use crate::report::Reporter;

pub(super) struct Reporters(Vec<Box<dyn Reporter>>);

impl Reporters {
    pub(super) fn new(reporters: Vec<Box<dyn Reporter>>) -> Self {
        Self(reporters)
    }

    /// Gives an event to all reporters. One that fails gets no more of them, and its error is returned.
    pub(super) fn emit(&mut self, event: &Event) -> anyhow::Result<()> {
        let mut failed = None;
        self.0.retain_mut(|reporter| match reporter.report(event) {
            Ok(()) => true,
            // The user has closed the pipe: the run goes on, since its exit code still counts.
            Err(error) if is_closed_pipe(&error) => false,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<serde_json::Error>() {
        Some(json) => json.io_error_kind(),
        None => cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
    };
    error.chain().any(|cause| kind(cause) == Some(std::io::ErrorKind::BrokenPipe))
}
