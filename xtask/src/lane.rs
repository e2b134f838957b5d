//! What each lane of CI consists of: one list a lane, and nothing CI knows that is not here.

use crate::flags::LaneName;
use crate::step::{Step, Tier};

/// The steps of a lane that runs something; the gate runs nothing.
pub(crate) fn steps(lane: LaneName) -> &'static [Step] {
    match lane {
        LaneName::Check => &[Step::Format, Step::Tidy, Step::Build, Step::UnitTests],
        LaneName::Rootless => &[Step::Build, Step::Conformance(Tier::Rootless)],
        LaneName::Host => {
            &[Step::Build, Step::WaitingTests, Step::Conformance(Tier::Host), Step::ProductTests]
        }
        LaneName::Vm => &[Step::Build, Step::Conformance(Tier::Vm)],
        LaneName::Gate => &[],
    }
}

/// Everything that can run on this machine: `cargo xtask test`.
pub(crate) fn everything(root: bool) -> Vec<Step> {
    let mut all = steps(LaneName::Check).to_vec();
    // The tests that wait begin as soon as there is something to test.
    let built = all.iter().position(|step| *step == Step::Build).expect("every lane builds");
    all.insert(built + 1, Step::WaitingTests);
    let tier = if root { LaneName::Host } else { LaneName::Rootless };
    all.extend(steps(tier).iter().filter(|step| !matches!(step, Step::Build | Step::WaitingTests)));
    // Without root the product tests still run: each says itself what it cannot do here.
    if !root {
        all.push(Step::ProductTests);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_holds_each_step_once() {
        for root in [true, false] {
            let all = everything(root);
            for (at, step) in all.iter().enumerate() {
                assert!(!all[at + 1..].contains(step), "{step:?} twice");
            }
            assert!(all.contains(&Step::ProductTests));
            let begins = |wanted| all.iter().position(|step| *step == wanted);
            assert_eq!(begins(Step::WaitingTests), begins(Step::Build).map(|built| built + 1));
        }
    }

    #[test]
    fn everything_a_root_can_do_is_the_check_and_the_host_lane() {
        let all = everything(true);
        for step in steps(LaneName::Check).iter().chain(steps(LaneName::Host)) {
            assert!(all.contains(step), "{step:?}");
        }
    }
}
