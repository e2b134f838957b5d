//! Plays many seeds and says which promises break how often; with one seed, shows what it takes.
//!
//! `survey N` for the seeds below N, `survey = SEED` for one.

use std::collections::BTreeMap;

use sim::script::Scenario;
use sim::{Outcome, Violated, minimise, simulate};

const STEPS: usize = 40;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["=", seed] => show(seed.parse().expect("a seed is a number")),
        ["digest", from, to] => digest(from.parse().expect("a number")..to.parse().expect("a number")),
        [count] => survey(count.parse().expect("a count is a number")),
        _ => eprintln!("usage: survey N | survey = SEED"),
    }
}

fn survey(seeds: u64) {
    let mut broken: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut events = 0;
    let begun = std::time::Instant::now();
    for seed in 0..seeds {
        let scenario = Scenario::of(seed);
        match simulate(&scenario, &scenario.script(STEPS)) {
            Outcome::Clean(statistics) => events += statistics.events,
            Outcome::Violated(violated) => broken.entry(violated.signature()).or_default().push(seed),
        }
    }
    for (signature, seeds) in &broken {
        println!("{:>5}  {signature}: {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
    }
    println!("{events} events of clean seeds in {:.1}s", begun.elapsed().as_secs_f64());
}

fn show(seed: u64) {
    let scenario = Scenario::of(seed);
    match simulate(&scenario, &scenario.script(STEPS)) {
        Outcome::Clean(_) => println!("seed {seed} is clean"),
        Outcome::Violated(violated) => print(&minimise(violated)),
    }
}

fn print(violated: &Violated) {
    for line in &violated.trace {
        println!("{}", serde_json::to_string(line).expect("a line is plain data"));
    }
    println!("{violated}");
}

fn digest(seeds: std::ops::Range<u64>) {
    use std::hash::{DefaultHasher, Hash, Hasher};
    for seed in seeds {
        let scenario = Scenario::of(seed);
        let mut hasher = DefaultHasher::new();
        sim::trace_of(&scenario, &scenario.script(STEPS)).hash(&mut hasher);
        println!("{seed} {:x}", hasher.finish());
    }
}
