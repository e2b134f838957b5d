//! Group snapshots in a script: a user's steps with them, among the other steps.

use std::time::Duration;

use fastrand::Rng;

use super::{Origin, Scenario, Step};

/// How many groups a script has.
const GROUPS: u32 = 3;

/// Adds a life of each group to a script, at random places in their order.
pub(super) fn among(scenario: &Scenario, steps: Vec<Step>) -> Vec<Step> {
    let mut random = Rng::with_seed(scenario.seed ^ 0x9209);
    let mut all = steps;
    for group in 0..GROUPS {
        let mut at = random.usize(..all.len() + 1);
        for step in life(scenario, group, &mut random) {
            all.insert(at, step);
            at = random.usize(at + 1..all.len() + 1);
        }
    }
    all
}

fn life(scenario: &Scenario, group: u32, random: &mut Rng) -> Vec<Step> {
    let count = scenario.volumes.len();
    let mut volumes: Vec<usize> = (0..count).filter(|_| random.u32(..3) > 0).collect();
    if volumes.is_empty() {
        volumes.push(random.usize(..count));
    }
    let member = volumes[random.usize(..volumes.len())];
    let restored = random.usize(..count);
    let mut life = vec![Step::AddGroup { group, volumes }];
    if random.bool() {
        life.push(Step::Pass(Duration::from_millis(random.u64(..8_000))));
    }
    if random.u32(..3) == 0 {
        life.push(Step::DeleteMember { group, volume: member });
    }
    if random.bool() {
        life.push(Step::DeleteClaim { volume: restored });
        life.push(Step::Pass(Duration::from_millis(random.u64(..20_000))));
        let from = Some(Origin::Member(group, member));
        life.push(Step::AddClaim { volume: restored, from, class: None });
    }
    if random.u32(..4) > 0 {
        life.push(Step::DeleteGroup { group });
    }
    life
}
