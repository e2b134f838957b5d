//! Cases that wait for a driver that they share with others. The workers take them one by one, in order, so that none is
//! idle while another has many left: from a pipe with the number of each case. Makes a pipe.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use testbed::case::CaseId;
use testbed::message::Orders;

use super::{Job, lane};
use crate::message::SharedCase;
use crate::turn::Turn;

/// The most cases of a pool: their numbers fit into a pipe, and each worker holds the directories of all of them open, of
/// which it may have 1,024.
pub(super) const LARGEST: usize = 500;

#[derive(Debug)]
pub(super) struct Pool {
    jobs: Vec<Job>,
    /// In the order of the jobs, once a worker has started.
    orders: OnceCell<Vec<Orders>>,
    /// Has no writer any more: where no number is left, it is at its end.
    turns: File,
    /// The numbers of the jobs that have begun or were taken back.
    gone: RefCell<BTreeSet<usize>>,
    /// The number of workers that take jobs.
    pub(super) workers: Cell<usize>,
}

impl Pool {
    pub(super) fn new(jobs: Vec<Job>) -> io::Result<Self> {
        let (turns, all) = lane::high_pipe()?;
        let mut all = File::from(all);
        (0..jobs.len()).try_for_each(|number| all.write_all(&Turn::of(number).0))?;
        let (orders, gone, workers) = (OnceCell::new(), RefCell::default(), Cell::new(0));
        Ok(Self { jobs, orders, turns: turns.into(), gone, workers })
    }

    /// The descriptor from which workers read their turns.
    pub(super) fn turns(&self) -> BorrowedFd<'_> {
        self.turns.as_fd()
    }

    /// The orders of all jobs, which `make` makes when the first worker starts.
    pub(super) fn orders(&self, make: impl Fn(Job) -> anyhow::Result<Orders>) -> anyhow::Result<&[Orders]> {
        if self.orders.get().is_none() {
            let orders = self.jobs.iter().map(|job| make(*job)).collect::<anyhow::Result<Vec<Orders>>>()?;
            self.orders.get_or_init(|| orders);
        }
        Ok(self.orders.get().map_or(&[], Vec::as_slice))
    }

    /// The cases that have not begun, in the form of a worker's task.
    pub(super) fn cases(&self) -> Vec<SharedCase> {
        let gone = self.gone.borrow();
        let all = self.jobs.iter().zip(self.orders.get().into_iter().flatten()).enumerate();
        let left = all.filter(|(number, _)| !gone.contains(number));
        left.map(|(number, (job, orders))| SharedCase {
            turn: Turn::of(number),
            id: job.case.id(),
            directory: orders.directory.clone(),
            tag: orders.tag.clone(),
            seed: orders.seed,
        })
        .collect()
    }

    /// Takes note that a worker has begun a case. Returns its job with the orders.
    pub(super) fn begun(&self, id: &CaseId) -> Option<(Job, Orders)> {
        let number = self.jobs.iter().position(|job| job.case.id() == *id)?;
        self.gone.borrow_mut().insert(number);
        Some((self.jobs[number], self.orders.get()?[number].clone()))
    }

    /// Whether no worker finds another case here.
    pub(super) fn is_empty(&self) -> bool {
        rustix::io::ioctl_fionread(&self.turns).is_ok_and(|waiting| waiting == 0)
    }

    /// Takes back the jobs that no worker has taken.
    pub(super) fn drain(&self) -> Vec<Job> {
        let mut numbers = Vec::new();
        // Nothing more comes: what could not be read is found by `lost`.
        let _ = (&self.turns).read_to_end(&mut numbers);
        let (turns, _) = numbers.as_chunks();
        self.take_back(turns.iter().map(|turn| Turn(*turn).number()).collect())
    }

    /// Takes back the jobs that a worker has taken and not begun, when there is no worker any more and no job left.
    pub(super) fn lost(&self) -> Vec<Job> {
        match self.workers.get() == 0 && self.is_empty() {
            true => self.take_back((0..self.jobs.len()).collect()),
            false => vec![],
        }
    }

    fn take_back(&self, numbers: Vec<usize>) -> Vec<Job> {
        let mut gone = self.gone.borrow_mut();
        let left = numbers.into_iter().filter(|number| *number < self.jobs.len() && gone.insert(*number));
        left.map(|number| self.jobs[number]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::shared::tests::{jobs, names};
    use crate::turn::Turns;

    #[test]
    fn each_job_is_taken_once_by_whichever_worker_comes() {
        let pool = Pool::new(jobs()).unwrap();
        let mut workers = [0, 1].map(|_| Turns::from(pool.turns().try_clone_to_owned().unwrap()));
        let taken: Vec<usize> =
            [0, 1, 0].into_iter().map(|worker| workers[worker].next().unwrap().number()).collect();
        assert_eq!(taken, [0, 1, 2]);
        assert!(workers.iter_mut().all(|turns| turns.next().is_none()) && pool.is_empty());
    }

    #[test]
    fn jobs_that_have_not_begun_are_taken_back() {
        let pool = Pool::new(jobs()).unwrap();
        pool.workers.set(1);
        let mut turns = Turns::from(pool.turns().try_clone_to_owned().unwrap());
        turns.next();
        assert!(!pool.is_empty());
        assert_eq!((names(&pool.drain()), names(&pool.lost())), ("bc".to_owned(), String::new()));
        // The worker died before it said that its case begins.
        pool.workers.set(0);
        assert_eq!((names(&pool.lost()), names(&pool.lost())), ("a".to_owned(), String::new()));
    }
}
