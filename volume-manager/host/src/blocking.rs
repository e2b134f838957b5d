//! Work that blocks on the kernel, on threads that may block. Touches tokio's blocking pool.

/// Runs `work` on a blocking thread under the caller's `tracing` subscriber and span. A scoped subscriber
/// belongs to a thread, and `work` announces its effects on the blocking one.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let span = tracing::Span::current();
    let task = tokio::task::spawn_blocking(move || {
        tracing::dispatcher::with_default(&dispatch, || span.in_scope(work))
    });
    match task.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Cancelled before it began: the runtime is shutting down, and the result will not be read.
        Err(_) => std::future::pending().await,
    }
}
