//! Faults of a fake host: an order for each of its steps. Touches nothing.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A step about to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// The method of [`crate::Host`], such as `unmount`.
    pub method: &'static str,
    /// Of a step with two paths, the target.
    pub path: &'a Path,
}

/// The fate of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Taken at once, without an await.
    Go,
    /// Other tasks run first. A future dropped meanwhile has not taken the step.
    Yield,
    /// Taken after this time on tokio's clock, which a test may have paused.
    Delay(Duration),
    /// Fails with this error number and changes nothing.
    Fail(i32),
    /// Taken, and then fails with this error number.
    FailAfter(i32),
    /// Never ends and changes nothing.
    Hang,
    /// Taken, and then never ends.
    HangAfter,
}

/// Callback that decides each step of a host.
pub type Decide = Box<dyn FnMut(&Step<'_>) -> Order + Send>;

/// The orders of a host. Clones share them.
///
/// The first matching rule decides, in the order the rules were added; then the callback of
/// [`Faults::decide_with`]; else the step is taken.
#[derive(Clone, Default)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    rules: Vec<Rule>,
    decide: Option<Decide>,
}

/// An order for the steps that match.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<&'static str>,
    below: Option<PathBuf>,
    order: Order,
    skip: u32,
    times: u32,
}

impl Rule {
    /// Matches every step.
    pub fn new(order: Order) -> Self {
        Self { method: None, below: None, order, skip: 0, times: u32::MAX }
    }

    /// Matches only this method.
    #[must_use]
    pub fn on(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }

    /// Matches only this path and paths below it.
    #[must_use]
    pub fn below(mut self, path: impl Into<PathBuf>) -> Self {
        self.below = Some(path.into());
        self
    }

    /// Skips the first `steps` that match.
    #[must_use]
    pub fn after(mut self, steps: u32) -> Self {
        self.skip = steps;
        self
    }

    /// Ends after this number of steps.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// The order, if this step matches and the rule has not ended.
    fn take(&mut self, step: &Step<'_>) -> Option<Order> {
        let method = self.method.is_none_or(|method| method == step.method);
        let path = self.below.as_ref().is_none_or(|below| step.path.starts_with(below));
        if !method || !path || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times = self.times.saturating_sub(u32::from(self.times != u32::MAX));
        Some(self.order)
    }
}

impl Faults {
    /// Every step is taken.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule after the existing ones.
    pub fn add(&self, rule: Rule) {
        self.lock().rules.push(rule);
    }

    /// Removes all rules and the callback.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// Sets the callback for steps that match no rule. It must not call the host.
    pub fn decide_with(&self, decide: impl FnMut(&Step<'_>) -> Order + Send + 'static) {
        self.lock().decide = Some(Box::new(decide));
    }

    pub(super) fn order(&self, step: &Step<'_>) -> Order {
        let mut inner = self.lock();
        if let Some(order) = inner.rules.iter_mut().find_map(|rule| rule.take(step)) {
            return order;
        }
        inner.decide.as_mut().map_or(Order::Go, |decide| decide(step))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Faults")
            .field("rules", &inner.rules)
            .field("decided", &inner.decide.is_some())
            .finish()
    }
}
