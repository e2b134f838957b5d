//! The only source of time: every deadline, period and back-off reads a [`Clock`].
//!
//! There is no wall time in the manager. Three kinds of clock exist in two types: [`TokioClock`] is the real
//! one, and on a paused runtime the simulated one; [`AdvancingClock`] is real, too, and can be advanced, so that
//! a case about a back-off of two minutes does not wait for it.

#![expect(clippy::disallowed_methods, reason = "this is the one place that asks the runtime for the time")]

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

/// A moment on some clock. Moments of different clocks are not compared.
pub use tokio::time::Instant;

/// Tells the time and waits for it.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    fn now(&self) -> Instant;

    /// Returns once `moment` has come. May be dropped at any time.
    async fn sleep_until(&self, moment: Instant);

    /// Returns once `duration` has passed.
    async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }
}

/// A wait for a moment that is set again and again, and seldom to another one: a runtime's timer costs more than what most
/// turns of a loop do.
#[derive(Default)]
pub struct Alarm {
    due: Option<Instant>,
    /// Until `due`, unless it has ended.
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Alarm {
    /// Returns once the moment has come; never, if there is none. May be dropped at any time.
    pub async fn until(&mut self, clock: &Arc<dyn Clock>, due: Option<Instant>) {
        if self.due != due || self.wait.is_none() {
            let clock = Arc::clone(clock);
            self.wait = Some(Box::pin(async move {
                match due {
                    Some(due) => clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            }));
            self.due = due;
        }
        if let Some(wait) = &mut self.wait {
            wait.await;
        }
        self.wait = None;
    }
}

/// Runs `future` for at most `limit`; `None` if it took longer.
pub async fn within<F: Future>(clock: &dyn Clock, limit: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = clock.sleep(limit) => None,
    }
}

/// The runtime's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioClock;

impl TokioClock {
    /// The clock, ready to be shared.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self)
    }
}

#[async_trait]
impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    async fn sleep_until(&self, moment: Instant) {
        tokio::time::sleep_until(moment).await;
    }
}

/// A real clock that runs ahead of the runtime's by as much as it was advanced. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct AdvancingClock {
    ahead: Arc<watch::Sender<Duration>>,
}

impl Default for AdvancingClock {
    fn default() -> Self {
        Self { ahead: Arc::new(watch::Sender::new(Duration::ZERO)) }
    }
}

impl AdvancingClock {
    /// Skips `by`: a sleep whose end is now past ends at once.
    pub fn advance(&self, by: Duration) {
        self.ahead.send_modify(|ahead| *ahead += by);
    }
}

#[async_trait]
impl Clock for AdvancingClock {
    fn now(&self) -> Instant {
        Instant::now() + *self.ahead.borrow()
    }

    async fn sleep_until(&self, moment: Instant) {
        let mut changes = self.ahead.subscribe();
        loop {
            let ahead = *changes.borrow_and_update();
            let Some(due) = moment.checked_sub(ahead) else { return };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(due) => return,
                // The sender lives in `self`, so this only ever means that the clock was advanced.
                _ = changes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn advancing_wakes_those_whose_moment_is_past() {
        let clock = AdvancingClock::default();
        let started = Instant::now();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(122)).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(121));
        clock.advance(Duration::from_secs(1));
        sleeper.await.expect("it only sleeps");
        assert_eq!(Instant::now(), started, "no time of the runtime has passed");
    }

    #[tokio::test(start_paused = true)]
    async fn alarm_rings_at_the_moment_that_was_set_last() {
        let (clock, mut alarm, begun) = (TokioClock::shared(), Alarm::default(), Instant::now());
        let at = |seconds| Some(begun + Duration::from_secs(seconds));
        for due in [at(9), at(9), None, at(5), at(7)] {
            assert_eq!(within(&*clock, Duration::from_secs(1), alarm.until(&clock, due)).await, None);
        }
        alarm.until(&clock, at(7)).await;
        assert_eq!(Some(Instant::now()), at(7));
        alarm.until(&clock, at(7)).await;
        assert_eq!(Some(Instant::now()), at(7), "it is past");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_future_is_cancelled() {
        let clock = TokioClock;
        let forever = std::future::pending::<()>();
        assert_eq!(within(&clock, Duration::from_secs(1), forever).await, None);
        assert_eq!(within(&clock, Duration::from_secs(1), async { 7 }).await, Some(7));
    }
}
