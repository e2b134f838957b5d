//! Work that waits for the kernel, on threads that may wait. Touches tokio's blocking pool.

/// Runs `work` on a blocking thread, under the caller's `tracing` subscriber and span: a scoped subscriber
/// belongs to a thread, and the effects are announced on that one.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let span = tracing::Span::current();
    let task = tokio::task::spawn_blocking(move || {
        tracing::dispatcher::with_default(&dispatch, || span.in_scope(work))
    });
    match task.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Cancelled before it began: the runtime is going down, and nobody will look at a result.
        Err(_) => std::future::pending().await,
    }
}
