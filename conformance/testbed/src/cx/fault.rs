//! Faults: what happens to calls between the node and the driver.

use std::panic::Location;
use std::rc::Rc;

use super::Shared;
use crate::call::{Code, Method};
use crate::failure::Result;

/// Calls that fail without reaching the driver, from now on and until they have failed often enough.
#[derive(Debug)]
pub struct Fault {
    shared: Rc<Shared>,
    method: Method,
    code: Code,
}

impl Fault {
    pub(super) fn new(shared: Rc<Shared>, method: Method, code: Code) -> Self {
        Self { shared, method, code }
    }

    /// Lets the next `times` calls fail.
    pub fn times(self, times: u32) {
        self.shared.bed.fail(self.method, self.code, times);
    }
}

/// A call that is held on its way. The driver may have done its work, but the node does not know.
#[derive(Debug)]
pub struct Held {
    shared: Rc<Shared>,
    method: Method,
}

impl Held {
    pub(super) fn new(shared: Rc<Shared>, method: Method) -> Self {
        Self { shared, method }
    }

    /// Waits until a call is held: the driver has done its work, and the answer does not go on.
    #[track_caller]
    pub fn reached(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin(&format!("{}.reached()", self.method.name()), Location::caller());
        async move { doing.done(self.shared.bed.held(self.method).await) }
    }

    /// Waits until a call is held that the driver has answered with OK.
    #[track_caller]
    pub fn succeeded(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin(&format!("{}.succeeded()", self.method.name()), Location::caller());
        async move { doing.done(self.shared.bed.held_success(self.method).await) }
    }

    /// Lets it go on.
    pub fn release(self) {
        self.shared.bed.release(self.method);
    }
}
