//! Several cases on one driver, one after the other, each as if the driver had just started.
//!
//! After each case all checks of a case that runs alone are made, except the driver's end, which they have in common. The
//! first case that does not pass is the last one on this driver: it runs again, alone.

use std::time::Instant;

use harness::manifest::Sensitive;
use harness::sandbox::Sandbox;
use testbed::bed::Bed;
use testbed::case::Case;
use testbed::cx::Claims;
use testbed::message::{Abilities, Orders};

use super::aftermath::{Aftermath, Before};
use super::{Voice, body, find, outcome, status_and_findings};
use crate::event::Status;
use crate::message::{MOST, Outcome, SHIFT, Said, SharedCase};
use crate::turn::Turns;

pub(super) async fn run_cases(
    orders: &Orders,
    sandbox: &Sandbox,
    cases: &[SharedCase],
    mut turns: Turns,
    abilities: &Abilities,
    voice: &Voice,
) -> Said {
    // The turn of a case that had begun earlier does not come up again.
    let mut turn = || turns.find_map(|turn| cases.iter().find(|case| case.turn == turn));
    let Some(mut next) = turn() else { return Said::DriverEnded(None) };
    voice.say(&Said::Begun(next.id.clone()));
    let mut bed = match Bed::put_up(orders, sandbox, abilities).await {
        Ok(bed) => bed,
        Err(refusal) => return Said::Refused(refusal),
    };
    voice.hide(bed.journal.masks().clone());
    let (began, at_first) = (Instant::now(), Before::take(sandbox));
    let mut secrets = Vec::new();
    let mut number = 0;
    loop {
        number += 1;
        let case = match find(&next.id) {
            Ok(case) => case,
            Err(refusal) => return Said::Refused(refusal),
        };
        let own = Orders {
            directory: next.directory.clone(),
            tag: next.tag.clone(),
            seed: next.seed,
            ..orders.clone()
        };
        let (begin, before) = (Instant::now(), Before::take(sandbox));
        let mut cx = voice.context(bed.next_case(&own, sandbox), case, &own);
        let failure = body(case, &mut cx, &own).await.err();
        let (seconds, failed) = (begin.elapsed().as_secs_f64(), failure.is_some());
        let shared = cx.shared();
        let (after, unwritten) = Aftermath::between_cases(&shared.bed, &own, sandbox, before, failed).await;
        let mut outcome = outcome(case, failure, after, &cx, seconds);
        let is_plain = outcome.status == Status::Passed && outcome.findings.is_empty();
        let unwritten = match unwritten {
            Some(records) if !is_plain => {
                outcome.unchecked.extend(records.write_masked(&shared.bed, &own));
                None
            }
            unwritten => unwritten,
        };
        secrets.extend(shared.bed.secrets());
        let left = shared.bed.left_over();
        left.iter()
            .for_each(|left| eprintln!("{} shares a driver, and {left} of it is still there", next.id));
        let is_sound = outcome.status == Status::Passed && left.is_none();
        voice.say(&Said::Outcome(Box::new(outcome)));
        drop(shared);
        let goes_on = is_sound && number < MOST && began.elapsed() < SHIFT;
        let ended = async |bed: &Bed| {
            let found = ended(bed, orders, sandbox, &at_first, &secrets, case).await;
            // The logs of a case before the driver's end may say why.
            if let Some(records) = unwritten.filter(|_| found.is_some()) {
                let lost = records.write_masked(bed, &own);
                lost.iter().for_each(|lost| eprintln!("{}: {lost}", next.id));
            }
            Said::DriverEnded(found)
        };
        bed = match cx.into_bed() {
            Ok(bed) => match goes_on.then(&mut turn).flatten() {
                Some(following) => {
                    next = following;
                    bed
                }
                None => return ended(&bed).await,
            },
            Err(shared) => return ended(&shared.bed).await,
        };
        voice.say(&Said::Begun(next.id.clone()));
    }
}

/// Ends the driver after the last of its cases. Returns the findings of its end.
async fn ended(
    bed: &Bed,
    orders: &Orders,
    sandbox: &Sandbox,
    before: &Before,
    secrets: &[Sensitive<String>],
    last: &Case,
) -> Option<Box<Outcome>> {
    let after = Aftermath::of_shared_driver(bed, orders, sandbox, before, secrets).await;
    let found = (!after.is_clean())
        .then(|| status_and_findings(last, None, after, Claims::default(), bed.journal.symbols(), 0.0));
    found.map(Box::new)
}
