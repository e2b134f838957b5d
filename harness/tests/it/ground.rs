//! The ground under a case: sandbox, janitor, ledger, loop devices, witnesses, census.

use libtest_mimic::Trial;

mod faults;
pub(crate) mod inside;
mod kill;
mod limits;
mod loops;
mod machine;
mod mounts;
mod sandbox;

pub(crate) fn trials() -> Vec<Trial> {
    [
        sandbox::trials(),
        machine::trials(),
        loops::trials(),
        limits::trials(),
        mounts::trials(),
        faults::trials(),
        kill::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
