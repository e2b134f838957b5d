//! The same random mounts, binds, moves, propagation changes and unmounts on a real kernel and on the
//! simulated one: every answer and every mount table must agree.
//!
//! `HOST_SEEDS=N` runs N sequences of `HOST_LENGTH=N` operations, `HOST_FIRST_SEED=S` starts at seed S;
//! `HOST_VERBOSE=1` prints each seed.

mod compare;
mod operation;
mod real;
mod simulated;

use compare::canonical;
use operation::{Operation, sequence};
use real::Real;
use simulated::Simulated;

use crate::namespace::in_namespace;
use crate::random::{Random, from_environment};

/// The most mounts of a sequence: more find no other kinds of difference.
const MOST_MOUNTS: usize = 150;

#[test]
fn simulated_kernel_mounts_as_the_real_one() {
    let (first, count) = (from_environment("HOST_FIRST_SEED", 1), from_environment("HOST_SEEDS", 300));
    let length = usize::try_from(from_environment("HOST_LENGTH", 40)).unwrap();
    let run = in_namespace(move || {
        for seed in first..first + count {
            if std::env::var_os("HOST_VERBOSE").is_some() {
                eprintln!("seed {seed}");
            }
            let operations = sequence(&mut Random::new(seed), length);
            if let Err(difference) = differ(&operations) {
                let (shortest, difference) = shorten(operations, difference);
                panic!("seed {seed}: {difference}\nafter\n{}", operation::script(&shortest));
            }
        }
    });
    if let Err(reason) = run {
        eprintln!("not run: {reason}");
    }
}

/// Runs a sequence on both kernels; the error is the first difference.
fn differ(operations: &[Operation]) -> Result<(), String> {
    let (mut real, mut simulated) = (Real::new(), Simulated::new());
    let verbose = std::env::var_os("HOST_VERBOSE").is_some();
    for (index, operation) in operations.iter().enumerate() {
        if simulated.table().entries().len() > MOST_MOUNTS {
            break;
        }
        if verbose {
            eprintln!("    {operation} ({} mounts)", simulated.table().entries().len());
        }
        let (there, here) = (real.apply(operation), simulated.apply(operation));
        if there != here {
            return Err(format!("{index}: {operation}: the kernel says {there:?}, the fake {here:?}"));
        }
        let there = canonical(&real.table(), real.root());
        let here = canonical(&simulated.table(), simulated.root());
        if there != here {
            return Err(format!("{index}: {operation}: {}", compare::difference(&there, &here)));
        }
    }
    Ok(())
}

/// Removes operations that the difference does not need.
fn shorten(mut operations: Vec<Operation>, mut difference: String) -> (Vec<Operation>, String) {
    let mut index = operations.len();
    while index > 0 {
        index -= 1;
        let mut shorter = operations.clone();
        shorter.remove(index);
        if let Err(other) = differ(&shorter) {
            (operations, difference) = (shorter, other);
            index = index.min(operations.len());
        }
    }
    (operations, difference)
}
