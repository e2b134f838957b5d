//! The API in memory among many objects, as node and controllers of a case ask it.

use std::time::Instant;

use api::{Claim, Kind, Meta};
use harness::api_server::ApiServer;
use harness::journal::Journal;
use harness::symbols::Symbols;
use measure::{Aim, Program, Row};

use super::SUBJECT;

/// The number of claims in a namespace.
const BESIDE: usize = 20;

pub(crate) fn api(program: &Program) {
    let sizes: &[usize] = if program.is_short() { &[100, 1000] } else { &[1000, 10_000, 100_000] };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut growing: [Vec<(usize, Vec<f64>)>; 3] = Default::default();
    for size in sizes {
        let times = runtime.block_on(requests(*size, program.rounds(201)));
        growing.iter_mut().zip(times).for_each(|(growing, times)| growing.push((*size, times)));
    }
    for (name, sizes) in ["write an object", "read an object", "list a namespace"].into_iter().zip(growing) {
        program.row(&Row::growing(SUBJECT, format!("API: {name}"), "us", &sizes).aim(Aim::Ratio(1.5)));
    }
}

/// The times of requests among so many claims, in microseconds.
async fn requests(claims: usize, rounds: usize) -> [Vec<f64>; 3] {
    let api = ApiServer::new(Journal::new(Symbols::new(harness::Layout::standard()), None));
    for number in 0..claims {
        api.create(claim(&format!("n{}", number / BESIDE), number)).unwrap();
    }
    let source = api.seen_by(contracts::event::Client::Case);
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        let us = |began: Instant| began.elapsed().as_secs_f64() * 1e6;
        let began = Instant::now();
        let made = api.create(claim("here", round)).unwrap();
        times[0].push(us(began));
        let began = Instant::now();
        source.get(&api::Resource::key(&*made)).await.unwrap();
        times[1].push(us(began));
        let began = Instant::now();
        assert_eq!(source.list_in(Kind::Claim, "n3").await.unwrap().len(), BESIDE);
        times[2].push(us(began));
    }
    times
}

fn claim(namespace: &str, number: usize) -> Claim {
    Claim { meta: Meta::named(namespace, format!("claim-{number}")), ..Claim::default() }
}
