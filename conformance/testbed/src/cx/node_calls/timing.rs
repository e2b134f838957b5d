//! Calls that are made at once, repeated until they are answered as CSI asks, or cancelled.

use std::cell::Cell;
use std::panic::Location;
use std::task::Poll;
use std::time::{Duration, Instant};

use contracts::rule::books::is_unknown;
use harness::load;

use super::Call;
use crate::bed::{Bed, StepError};
use crate::cx::{Answer, Cx, Doing};
use crate::failure::Result;

impl Cx {
    /// Makes calls concurrently and waits for the answer to each.
    #[track_caller]
    pub fn at_once(&self, calls: Vec<Call>) -> impl Future<Output = Result<Vec<Answer>>> + use<> {
        let doing = self.shared.begin("cx.at_once()", Location::caller());
        self.all_answered(doing, calls, Bed::call_limit)
    }

    /// Makes a call while a disk or daemon below its volume fails. A call without an answer breaks DRV-093 and
    /// returns `None`.
    #[track_caller]
    pub fn answer_to(&self, call: Call) -> impl Future<Output = Result<Option<Answer>>> + use<> {
        let doing = self.shared.begin("cx.answer_to()", Location::caller());
        let answers = self.all_answered(doing, vec![call], Bed::limit_of_disturbed_call);
        async move { Ok(answers.await?.pop()) }
    }

    fn all_answered(
        &self,
        doing: Doing,
        calls: Vec<Call>,
        limit_of: fn(&Bed) -> Duration,
    ) -> impl Future<Output = Result<Vec<Answer>>> + use<> {
        let (cx, count) = (Cx { shared: self.shared() }, calls.len());
        async move {
            let answered = Cell::new(0);
            let mut polled = std::pin::pin!(poll_together(calls, &answered));
            loop {
                let (limit, before) = (limit_of(&cx.shared.bed), answered.get());
                match load::within(limit, &mut polled).await {
                    Ok(answers) => {
                        cx.keeps("DRV-093", "", true, "")?;
                        return answers.into_iter().collect();
                    }
                    // The machine was too busy: the driver did not have its full time.
                    Err(late) if late.is_cut_short => {
                        return doing.done(Err(StepError::Environment(vec![late.to_string()])));
                    }
                    // A driver may serve the calls one after the other: the limit starts anew with each answer.
                    Err(_) if answered.get() > before => {}
                    Err(_) => {
                        cx.shared.last.replace(doing);
                        let cause = match count {
                            1 => format!("A call is not answered in {} s.", limit.as_secs_f64().round()),
                            _ => format!("Of {count} calls that were made at once, one is never answered."),
                        };
                        cx.keeps("DRV-093", "", false, &cause)?;
                        return Ok(vec![]);
                    }
                }
            }
        }
    }

    /// Repeats a call until the answer is not ABORTED. The caller has no other call under way, except cancelled ones.
    #[track_caller]
    pub fn until_free(&self, call: impl Fn() -> Call) -> impl Future<Output = Result<Answer>> {
        let doing = self.shared.begin("cx.until_free()", Location::caller());
        async move {
            let end = Instant::now() + self.shared.bed.call_limit();
            loop {
                let answer = call().await?;
                if answer.code() != "Aborted" {
                    self.keeps("DRV-130", answer.method(), true, "")?;
                    return Ok(answer);
                }
                if Instant::now() > end {
                    self.shared.last.replace(doing);
                    let answer = answer.asked("when no other call is under way");
                    answer.is("DRV-130", &["OK"])?;
                    return Ok(answer);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Repeats a call until it is OK: a cancelled call may still be under way in the driver and block it. Returns the last
    /// answer when the time is up, or when the answer is final and stays the same.
    #[track_caller]
    pub fn until_ok(&self, call: impl Fn() -> Call) -> impl Future<Output = Result<Answer>> {
        self.shared.begin("cx.until_ok()", Location::caller());
        async move {
            /// An error that stays the same for so long is not caused by a cancelled call.
            const SAME_ERROR: Duration = Duration::from_secs(2);
            let end = Instant::now() + self.shared.bed.call_limit();
            let (mut last, mut since) = (String::new(), Instant::now());
            loop {
                let answer = call().await?;
                if answer.words() != last {
                    (last, since) = (answer.words(), Instant::now());
                }
                let is_final =
                    !is_unknown(answer.code()) && since.elapsed() > SAME_ERROR.max(self.shared.bed.slowest());
                if answer.is_ok() || is_final || Instant::now() > end {
                    return Ok(answer);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Makes a call and cancels it if it is not answered within `after`.
    pub async fn cancels(&self, call: Call, after: Duration) {
        drop(tokio::time::timeout(after, call).await);
    }
}

/// Polls all calls together until each is answered; `answered` counts the answers so far.
async fn poll_together(mut calls: Vec<Call>, answered: &Cell<usize>) -> Vec<Result<Answer>> {
    let mut answers: Vec<Option<Result<Answer>>> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (call, answer) in calls.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(result) = call.as_mut().poll(context) {
                *answer = Some(result);
                answered.set(answered.get() + 1);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
