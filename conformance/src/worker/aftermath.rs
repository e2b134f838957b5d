//! What is looked at after each case, unasked.

use harness::sandbox::Sandbox;

use super::message::Orders;
use crate::cx::Cx;
use crate::event::{Breakage, Place};
use crate::finding::Finding;

/// What was there before the case.
#[derive(Debug)]
pub(super) struct Before {}

impl Before {
    pub(super) fn take(_sandbox: &Sandbox) -> Self {
        Self {}
    }
}

/// What was seen after it.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    pub(super) findings: Vec<Finding>,
    pub(super) left_behind: Vec<String>,
    pub(super) kernel: Vec<String>,
    pub(super) unchecked: Vec<String>,
    /// The driver's end, if nobody asked for it.
    pub(super) driver_exited: Option<String>,
    /// What the suite could not do.
    pub(super) ours: Option<String>,
}

impl Aftermath {
    pub(super) async fn see(
        _cx: &Cx,
        _orders: &Orders,
        _sandbox: &Sandbox,
        _before: Before,
        _failed: bool,
    ) -> Self {
        Self::default()
    }
}

/// The breakage of something that was seen after the last step.
pub(super) fn at_the_end(said: String) -> Breakage {
    let at = Place { file: String::new(), line: 0 };
    Breakage { after: String::new(), at, expected: None, actual: None, cause: vec![said] }
}
