//! Operations in flight. A second call for the same volume gets `ABORTED` at once; the caller may repeat it when the
//! first has ended.
//!
//! Deleting excludes every other call for the volume. Staging and unstaging exclude every other call for the volume
//! on that node. Publishing and unpublishing exclude only calls for the same target, so that pods of one volume can
//! start and stop at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

use crate::sabotage::Sabotage;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    subjects: Mutex<BTreeMap<String, Users>>,
    sabotage: Option<Sabotage>,
}

#[derive(Debug)]
enum Users {
    One,
    Many(usize),
}

/// A claim on subjects, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    table: Arc<InFlight>,
    subjects: Vec<String>,
}

impl InFlight {
    pub(crate) fn new(sabotage: Option<Sabotage>) -> Self {
        Self { subjects: Mutex::default(), sabotage }
    }

    /// Claims the last subject exclusively. The subjects before it contain it, and are shared with other claims.
    pub(crate) fn claim(self: &Arc<Self>, subjects: &[&str]) -> Result<Claim, Status> {
        let mut claim = Claim { table: Arc::clone(self), subjects: Vec::new() };
        match self.sabotage {
            Some(Sabotage::IgnoresOperationsInFlight) => return Ok(claim),
            Some(Sabotage::OneOperationAtATime) => {
                return claim.take("everything", false).map(|()| claim);
            }
            _ => {}
        }
        let mut whole = String::new();
        for (index, part) in subjects.iter().enumerate() {
            if index > 0 {
                whole.push_str(" at ");
            }
            whole.push_str(part);
            claim.take(&whole, index + 1 < subjects.len())?;
        }
        Ok(claim)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Claim {
    fn take(&mut self, subject: &str, shared: bool) -> Result<(), Status> {
        let mut subjects = self.table.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        match subjects.get_mut(subject) {
            None => {
                let users = if shared { Users::Many(1) } else { Users::One };
                subjects.insert(subject.to_owned(), users);
            }
            Some(Users::Many(count)) if shared => *count = count.saturating_add(1),
            Some(users) => {
                if self.table.sabotage == Some(Sabotage::AbortedCallKeepsLock) {
                    // More users than will ever leave: the subject stays claimed.
                    *users = Users::Many(usize::MAX);
                }
                return Err(Status::aborted(format!("an operation on `{subject}` is in flight")));
            }
        }
        self.subjects.push(subject.to_owned());
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut subjects = self.table.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        for subject in &self.subjects {
            match subjects.get_mut(subject) {
                Some(Users::Many(count)) if *count > 1 => *count -= 1,
                _ => drop(subjects.remove(subject)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_a_volume_do_not_exclude_each_other_and_staging_excludes_all() {
        let table = Arc::new(InFlight::default());
        let refused = |subjects: &[&str]| table.claim(subjects).map(drop).unwrap_err().code();
        let first = table.claim(&["v", "n", "/a"]).expect("nothing is in flight");
        let second = table.claim(&["v", "n", "/b"]).expect("another target");
        let other_node = table.claim(&["v", "m"]).expect("another node");
        assert_eq!(refused(&["v", "n", "/a"]), tonic::Code::Aborted);
        assert_eq!(refused(&["v", "n"]), tonic::Code::Aborted);
        assert_eq!(refused(&["v"]), tonic::Code::Aborted);
        drop((first, second, other_node));
        let alone = table.claim(&["v"]).expect("all claims have ended");
        assert_eq!(refused(&["v", "n", "/a"]), tonic::Code::Aborted);
        drop(alone);
        assert!(table.subjects.lock().unwrap().is_empty(), "every claim is removed");
    }
}
