//! The two witnesses of mounts (fanotify, and polling of mountinfo) must show the same mounts. So must the events of the
//! first one, replayed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use harness::observe::{Mount, MountEvent, MountEventKind, MountId, MountWatch, Witness};
use harness::sandbox::{Sandbox, SandboxOptions};
use libtest_mimic::{Failed, Trial};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::run_helper;

pub(crate) fn trials() -> Vec<Trial> {
    (1..=8)
        .map(|seed| {
            Trial::test(format!("mounts::witnesses_agree_{seed}"), move || -> Result<(), Failed> {
                run_helper("differential", &[&seed.to_string()]).map(drop)
            })
        })
        .collect()
}

/// A random number generator: the same seed gives the same failure again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// Changes mounts at random and compares the witnesses after each step.
pub(crate) fn differential(seed: u64) {
    let user_namespace = seed.is_multiple_of(2) || !nix::unistd::geteuid().is_root();
    let sandbox = Sandbox::enter(SandboxOptions { user_namespace, ..SandboxOptions::default() }).unwrap();
    let top = sandbox.layout().root().join("play");
    for index in 0..6 {
        fs::create_dir_all(top.join(index.to_string())).unwrap();
    }
    let first = MountWatch::start_with(Witness::Fanotify).unwrap();
    let second = MountWatch::start_with(Witness::Poll).unwrap();
    let mut replayed: BTreeMap<MountId, Mount> = first.mounts();
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for step in 0..250 {
        // Recursive binds of shared mounts multiply, and more mounts than these find no other bugs.
        let change = match first.mounts().len() {
            ..80 => random_step(&top, &mut dice),
            _ => clear(&top),
        };
        let (events, missed) = first.checkpoint().unwrap();
        assert_eq!(missed, [], "step {step}: {change}");
        for event in &events {
            replay(&mut replayed, event);
        }
        second.drain().unwrap();
        assert_eq!(replayed, first.mounts(), "step {step}: {change}: the replayed events give other mounts");
        assert_eq!(described(&replayed), described(&second.mounts()), "step {step}: {change}");
    }
}

fn clear(top: &Path) -> String {
    for index in 0..6 {
        while umount2(&top.join(index.to_string()), MntFlags::MNT_DETACH).is_ok() {}
    }
    "clear".to_owned()
}

fn replay(mounts: &mut BTreeMap<MountId, Mount>, event: &MountEvent) {
    match event.kind {
        MountEventKind::Detach => {
            let before = mounts.remove(&event.id);
            assert_eq!(before, event.mount, "the detached mount is not the known one");
        }
        MountEventKind::Attach => {
            let before = event.mount.clone().and_then(|mount| mounts.insert(event.id, mount));
            assert_eq!(before, None, "attached twice");
        }
        MountEventKind::Move { .. } | MountEventKind::Change { .. } => {
            // A mount that was detached right afterwards has no description; its detach event comes next.
            if let Some(now) = event.mount.clone() {
                assert!(mounts.insert(event.id, now).is_some(), "an unknown mount moved or changed");
            }
        }
    }
}

/// The mounts without ids, which differ between the witnesses, sorted by their description.
fn described(mounts: &BTreeMap<MountId, Mount>) -> Vec<Mount> {
    let mut all: Vec<Mount> =
        mounts.values().map(|mount| Mount { id: MountId(0), parent: MountId(0), ..mount.clone() }).collect();
    all.sort_by_key(|mount| format!("{mount:?}"));
    all
}

fn random_step(top: &Path, dice: &mut Dice) -> String {
    let at = |dice: &mut Dice| -> PathBuf {
        let place = top.join(dice.roll(6).to_string());
        let deeper = place.join("deeper");
        if dice.roll(3) == 0 && fs::create_dir_all(&deeper).is_ok() { deeper } else { place }
    };
    let (a, b) = (at(dice), at(dice));
    let none = None::<&str>;
    let result = match dice.roll(9) {
        0 | 1 => mount(Some("a b\\c"), &a, Some("tmpfs"), MsFlags::MS_NODEV, Some("size=64k")),
        2 => mount(Some(&a), &b, none, MsFlags::MS_BIND, none),
        3 => mount(Some(&a), &b, none, MsFlags::MS_BIND | MsFlags::MS_REC, none),
        4 => mount(
            none,
            &a,
            none,
            MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NODEV,
            none,
        ),
        5 => mount(Some(&a), &b, none, MsFlags::MS_MOVE, none),
        6 => mount(
            none,
            &a,
            none,
            [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED, MsFlags::MS_SLAVE][dice.roll(3)],
            none,
        ),
        7 => umount2(&a, MntFlags::UMOUNT_NOFOLLOW),
        _ => umount2(&a, MntFlags::MNT_DETACH),
    };
    format!("{} {} {result:?}", a.display(), b.display())
}
