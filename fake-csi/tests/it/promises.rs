//! Every promise: kept by the honest driver, broken by its sabotage.
//!
//! A probe is one look at one promise. It is held against an honest driver first, so that a probe that always fails
//! is noticed, and then against the sabotaged one, so that a probe that never fails is.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;

use fake_csi::Sabotage;
use serial_test::file_serial;

use crate::world::{World, in_namespace};

mod behaviour;
mod identity;
mod publish;
mod repeat;
mod size;
mod snapshots;
mod stage;
mod unpublish;
mod volumes;

/// Whether the promise is kept in this world.
type Probe = fn(World) -> Pin<Box<dyn Future<Output = bool>>>;

/// Probes by the name of the sabotage that must fail them.
type Chapter = &'static [(&'static str, Probe)];

/// A probe as a plain function.
macro_rules! probe {
    ($name:literal, $function:ident) => {
        ($name, |world| Box::pin($function(world)))
    };
}
use probe;

fn check(chapter: Chapter) {
    let mut wrong = Vec::new();
    for (name, probe) in chapter {
        let sabotage: Sabotage = name.parse().unwrap();
        if look(*probe, None) == Some(false) {
            wrong.push(format!("{name}: the honest driver breaks {}", sabotage.promise()));
        }
        if look(*probe, Some(sabotage)) == Some(true) {
            wrong.push(format!("{name}: the sabotaged driver keeps {}", sabotage.promise()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The answer of a probe, or nothing where there is no root.
fn look(probe: Probe, sabotage: Option<Sabotage>) -> Option<bool> {
    let (sender, receiver) = mpsc::channel();
    in_namespace(async move |mut world| {
        world.sabotage = sabotage;
        sender.send(probe(world).await).unwrap();
    });
    receiver.recv().ok()
}

macro_rules! chapters {
    ($($chapter:ident)*) => {
        $(
            #[test]
            #[file_serial(root)]
            fn $chapter() {
                check($chapter::PROBES);
            }
        )*

        #[test]
        fn every_sabotage_is_probed() {
            let probed: BTreeSet<_> =
                [$($chapter::PROBES),*].concat().into_iter().map(|(name, _)| name).collect();
            let all: BTreeSet<_> = Sabotage::ALL.iter().map(|sabotage| sabotage.name()).collect();
            assert_eq!(probed, all);
        }
    };
}

chapters! { behaviour identity publish repeat size snapshots stage unpublish volumes }
