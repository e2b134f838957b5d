//! What is to go wrong, and when: an order for each step of a fake host. Touches nothing.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A step about to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// The method of [`crate::Host`], such as `unmount`.
    pub method: &'static str,
    /// The path it is about: of two, the target.
    pub path: &'a Path,
}

/// What happens to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It is taken at once, without an await.
    Go,
    /// Others run first; then it is taken. A future dropped here has not taken it.
    Yield,
    /// It is taken after this time on tokio's clock, which a test may have paused.
    Delay(Duration),
    /// It fails with this error number, and nothing happened.
    Fail(i32),
    /// It is taken, and fails with this error number all the same.
    FailAfter(i32),
    /// It never ends and never happens.
    Hang,
    /// It is taken, and never ends.
    HangAfter,
}

/// Who decides about each step of a host.
pub type Decide = Box<dyn FnMut(&Step<'_>) -> Order + Send>;

/// The orders of one host. Clones are the same orders.
///
/// Rules are asked first, in the order they were given, then whoever [`Faults::decide_with`] named; else
/// steps go.
#[derive(Clone, Default)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    rules: Vec<Rule>,
    decide: Option<Decide>,
}

/// One order, for the steps it names.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<&'static str>,
    below: Option<PathBuf>,
    order: Order,
    skip: u32,
    times: u32,
}

impl Rule {
    /// The order for every step.
    pub fn new(order: Order) -> Self {
        Self { method: None, below: None, order, skip: 0, times: u32::MAX }
    }

    /// Only for this method.
    #[must_use]
    pub fn on(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }

    /// Only for this path and what is below it.
    #[must_use]
    pub fn below(mut self, path: impl Into<PathBuf>) -> Self {
        self.below = Some(path.into());
        self
    }

    /// Not for the first `steps` it would be for.
    #[must_use]
    pub fn after(mut self, steps: u32) -> Self {
        self.skip = steps;
        self
    }

    /// Only so many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// The order for this step, if it is for it and not used up.
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
    /// No orders: every step goes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule behind those there are.
    pub fn add(&self, rule: Rule) {
        self.lock().rules.push(rule);
    }

    /// Forgets all rules, and who decides.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// Lets somebody decide about every step no rule is for. He must not call the host.
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
