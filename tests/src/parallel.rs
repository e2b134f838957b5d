//! Several pieces of work at a time.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

/// Does the same with each item, on as many threads as there are processors. The answers are in the order of the
/// items.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
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
        assert!(in_parallel(Vec::<u32>::new(), |item| item).is_empty());
    }
}
