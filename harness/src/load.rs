//! Measures how busy the machine is, and waits with a limit that grows with the load.
//!
//! Where thirty processes want two processors, each gets a fifteenth of what it would have alone. A limit in
//! wall-clock time then judges the machine and not the process that is waited for. Reads `/proc/loadavg` and nothing else.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::standing;

/// The pause between two looks at the load.
const TICK: Duration = Duration::from_millis(50);

/// The greatest load that slows a wait: the number of runnable tasks is only an estimate.
const SLOWEST: f64 = 20.0;

/// A wait lasts at most this many times its limit, however busy the machine is.
const LONGEST: u32 = 3;

/// A wait that reached its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Late {
    /// The duration of the wait.
    pub waited: Duration,
    /// The mean number of runnable tasks for each processor during the wait; 1 if none had to wait.
    pub load: f64,
    /// Whether [`LONGEST`] ended the wait before the load-adjusted limit was reached.
    pub is_cut_short: bool,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waited, load, .. } = self;
        write!(
            f,
            "the machine was overloaded: for {} s, {load:.0} tasks competed for each processor; run it again with fewer \
             --jobs or when less else runs on this machine",
            waited.as_secs()
        )
    }
}

/// Waits for a future, up to a limit that grows with the load of the machine.
///
/// # Errors
/// When the limit is reached.
pub async fn within<T>(limit: Duration, awaited: impl Future<Output = T>) -> Result<T, Late> {
    tokio::select! {
        biased;
        done = awaited => Ok(done),
        late = limit_reached(limit) => Err(late),
    }
}

/// Returns when the limit is reached, which takes longer the busier the machine is.
pub async fn limit_reached(limit: Duration) -> Late {
    limit_reached_under(limit, Instant::now(), load).await
}

async fn limit_reached_under(limit: Duration, started: Instant, load: impl Fn() -> f64) -> Late {
    let (mut counted, mut slowness) = (Duration::ZERO, 1.0);
    loop {
        let waited = started.elapsed();
        let is_cut_short = counted < limit && waited >= limit * LONGEST;
        if counted >= limit || is_cut_short {
            let load = waited.as_secs_f64() / counted.as_secs_f64().max(1e-3);
            return Late { waited, load: load.clamp(1.0, SLOWEST), is_cut_short };
        }
        let tick = TICK.min((limit - counted).mul_f64(slowness)).max(Duration::from_millis(1));
        tokio::time::sleep(tick).await;
        slowness = load().clamp(1.0, SLOWEST);
        // A tick counts as planned even if it took longer: the machine stood still meanwhile.
        counted += tick.div_f64(slowness);
    }
}

/// The pause between two samples of a [`Meter`].
const SAMPLE: Duration = Duration::from_millis(200);

/// The load of the machine at each moment since a start. Ends when dropped.
#[derive(Debug)]
pub struct Meter {
    samples: Arc<Mutex<Vec<(Instant, f64)>>>,
    task: AbortHandle,
}

impl Meter {
    /// Starts to measure, in a task of this runtime.
    pub fn start() -> Self {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&samples);
        let task = tokio::spawn(async move {
            loop {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), load()));
                tokio::time::sleep(SAMPLE).await;
            }
        });
        Self { samples, task: task.abort_handle() }
    }

    /// The mean number of runnable tasks for each processor between two moments; 0 if it was not measured.
    pub fn mean(&self, from: Instant, to: Instant) -> f64 {
        mean(&self.samples.lock().unwrap_or_else(PoisonError::into_inner), from, to)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn mean(samples: &[(Instant, f64)], from: Instant, to: Instant) -> f64 {
    let within = samples.iter().filter(|(moment, _)| (from..=to).contains(moment));
    let (count, sum) = within.fold((0_u32, 0.0), |(count, sum), (_, load)| (count + 1, sum + load));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// The runnable tasks for each processor now.
fn load() -> f64 {
    if standing::in_guest() {
        // A guest cannot see the load of the machine that it runs on.
        return 1.0;
    }
    let loadavg = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    runnable(&loadavg).unwrap_or(1.0) / *PROCESSORS
}

/// The number of processors that this process may use.
static PROCESSORS: LazyLock<f64> = LazyLock::new(|| {
    let number = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
});

/// The fourth word of `/proc/loadavg`, before the slash.
fn runnable(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// The number of ticks of a wait under a load.
    async fn ticks(load: f64) -> u32 {
        let ticks = std::cell::Cell::new(0);
        let counting = || {
            ticks.set(ticks.get() + 1);
            load
        };
        limit_reached_under(TICK * 2, Instant::now() + LIMIT, counting).await;
        ticks.get()
    }

    #[tokio::test]
    async fn limit_grows_with_the_load() {
        assert_eq!(ticks(0.5).await, 2);
        assert_eq!(ticks(4.0).await, 8);
    }

    #[tokio::test]
    async fn wait_on_a_busy_machine_ends_at_three_times_its_limit() {
        let long_ago = Instant::now().checked_sub(LIMIT * LONGEST).expect("the machine runs for longer");
        let late = limit_reached_under(LIMIT, long_ago, || 15.0).await;
        assert!(late.is_cut_short, "{late:?}");
    }

    #[test]
    fn load_of_a_call_is_that_of_its_own_time() {
        let begin = Instant::now();
        let at = |second: u64| begin + Duration::from_secs(second);
        let samples = [(at(0), 1.0), (at(2), 8.0), (at(3), 10.0), (at(5), 1.0)];
        assert_eq!(mean(&samples, at(2), at(4)), 9.0);
        assert_eq!(mean(&samples, at(6), at(7)), 0.0, "it was not measured then");
    }

    #[tokio::test]
    async fn meter_measures_from_its_start() {
        let begin = Instant::now();
        let meter = Meter::start();
        while meter.mean(begin, Instant::now()) == 0.0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    fn load_is_read_as_the_kernel_writes_it() {
        assert_eq!(runnable("30.12 20.00 7.79 31/412 9981\n"), Some(31.0));
        assert_eq!(runnable(""), None);
    }
}
