//! Several pieces of work at a time.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

/// Work that waits most of the time leaves room for this much of it beside each other.
const WAITING: usize = 8;

/// Does the same with each item, on as many threads as there are processors. The answers are in the order of the
/// items.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    on_threads(thread::available_parallelism().map_or(1, NonZero::get), items, work)
}

/// As [`in_parallel`], for work that waits most of the time, for a call that is not answered or for the next try.
pub fn while_waiting<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    on_threads(WAITING, items, work)
}

fn on_threads<T: Send, R: Send>(threads: usize, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = threads.min(items.len());
    let answers = Mutex::new(Vec::new());
    let waiting = Mutex::new(items.into_iter().enumerate());
    let next = || waiting.lock().expect("no thread panics with the lock").next();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, item)) = next() {
                    let answer = work(item);
                    answers.lock().expect("no thread panics with the lock").push((at, answer));
                }
            });
        }
    });
    let mut answers = answers.into_inner().expect("no thread panics with the lock");
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_the_items() {
        let answers = in_parallel((0..100).collect(), |item: u32| item * 2);
        assert_eq!(answers, (0..100).map(|item| item * 2).collect::<Vec<u32>>());
        assert_eq!(while_waiting(vec![3, 1, 2], |item: u32| item + 1), [4, 2, 3]);
        assert!(in_parallel(Vec::<u32>::new(), |item| item).is_empty());
    }
}
