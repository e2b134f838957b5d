//! The places where cases can run, this machine or a guest, each with its features and the driver's answers there.

use std::collections::BTreeSet;
use std::rc::Rc;

use harness::cgroup;
use harness::facts::{Fact, Facts};
use harness::manifest::{Manifest, Span};

use super::super::vm::{self, Chosen};
use super::super::{Exit, image, look};
use super::reports::Reports;
use super::{Flags, Tier, manifest};
use runner::dispatch::{self, Away, Ledger};
use testbed::case::CaseId;
use testbed::message::Abilities;
use testbed::need::{Ground, Need};
use vm_images::qemu::Accelerator;

/// A place with its features, and the answers of a driver that was started there.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) facts: Facts,
    pub(super) manifest: Manifest,
    pub(super) abilities: Abilities,
    pub(super) ground: Ground,
}

/// The run that is about to begin, and what its places share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) flags: &'a Flags,
    pub(super) image: Option<&'a image::DriverImage>,
    pub(super) ledger: &'a Ledger,
    pub(super) reports: &'a Reports,
}

/// The guests that a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guests {
    /// KVM runs them.
    OnKvm,
    /// KVM runs them, or they are emulated.
    Any,
}

impl Place {
    /// Prepares a run whose cases have sandboxes on this machine.
    pub(super) async fn here(run: &Start<'_>) -> Result<Self, Exit> {
        let Start { flags, image, ledger, reports } = *run;
        ledger.will_look()?;
        let facts = Facts::get();
        look::can_sandbox(facts)?;
        // The driver enters a group when it is asked. Not earlier, since the look at the machine makes groups for a moment.
        cgroup::warm_up();
        let rootless = flags.rootless();
        let mut manifest = manifest(&flags.driver, rootless)?;
        if let Some(image) = image {
            image.adopt(&mut manifest, image.root(ledger).await?)?;
        }
        look::prepare_run(&manifest, ledger, &reports.directory).await?;
        let abilities = look::ask(&manifest, rootless, ledger, &reports.directory, None).await?;
        let mut ground = look::ground(facts, &manifest, &abilities);
        if flags.driver.is_ours() {
            // fake-csi keeps volumes in directories then, and makes only mounts that a user namespace allows.
            ground.gains(Need::Root);
            if let Some(absence) = facts.why_not(Fact::Ext4).filter(|_| !rootless) {
                let reason = format!("makes no ext4 here: {}; {}", absence.reason, absence.fix);
                for need in [Need::Filesystem, Need::Inline] {
                    ground.lacks(need, reason.clone());
                }
            }
        } else if flags.tier == Tier::Rootless {
            ground.lacks(Need::Root, "--tier rootless, and the driver may need root");
        }
        if rootless {
            ground.lacks(Need::Owners, "a user namespace has one user and one group");
        }
        Ok(Self { facts: facts.clone(), manifest, abilities, ground })
    }

    /// Guests with that kernel, if such guests are wanted.
    pub(super) async fn in_guests(
        run: &Start<'_>,
        kernel: Chosen,
        wanted: Guests,
    ) -> Result<(Self, Rc<dispatch::Guests>), Exit> {
        let Start { flags, image, ledger, reports } = *run;
        let mut manifest = manifest(&flags.driver, false)?;
        super::refuse_running(&manifest, "in a guest")?;
        if !manifest.per_run.is_empty() {
            return Err(Exit::usage("cannot use [per_run] with guests: its commands run on this machine")
                .hint("move them to [per_case], which runs in the guest"));
        }
        let root = vm::root_disk(&mut manifest, image, ledger).await?;
        let files = vm::packed(&mut manifest)?;
        // An emulated machine is slower than the machine that the manifest's limit is for.
        manifest.timeouts.start = Span::new(3 * manifest.start_timeout());
        let modules = manifest.guest.modules.clone();
        let contents = vm::Contents { files, modules, root, within: flags.boot_timeout };
        let guests = Rc::new(vm::guests(kernel, contents).await?);
        let verdict = &guests.kind().verdict;
        if wanted == Guests::OnKvm && verdict.accelerator != Accelerator::Kvm {
            return Err(Exit::environment(format!("a guest would be emulated, slowly: {}", verdict.reason))
                .hint("`--tier vm` runs it nevertheless"));
        }
        let facts = guests.look().await.map_err(|error| vm::does_not_boot(&error, &guests))?;
        let abilities = look::ask(&manifest, false, ledger, &reports.directory, Some(&guests)).await?;
        let ground = look::ground(&facts, &manifest, &abilities);
        Ok((Self { facts, manifest, abilities, ground }, guests))
    }

    /// The guests of a run, with the cases that run in them.
    pub(super) fn away(self, guests: Rc<dispatch::Guests>, cases: BTreeSet<CaseId>) -> Away {
        Away { guests, cases, manifest: self.manifest, abilities: self.abilities }
    }

    /// The facts for the head of a report that this place has (`there`) or lacks.
    pub(super) fn fact_names(&self, facts: &[Fact], there: bool) -> Vec<String> {
        let those = facts.iter().filter(|fact| self.facts.has(**fact) == there);
        those.map(|fact| fact.name().to_owned()).collect()
    }
}
