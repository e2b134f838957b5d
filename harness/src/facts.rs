//! What this machine, its kernel and this user can do: found out by doing it, once per process.
//!
//! No version is compared and no configuration is read: a container, a security module or a distribution's
//! patch can take away what a version promises. What is absent comes with the reason and, where there is one,
//! the command that adds it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

mod probe;

pub use crate::standing::{Standing, in_guest, is_root, standing};
pub(crate) use probe::program;
pub use probe::search_path;

/// Something that a case can need of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Fact {
    /// This process is root, and may make a mount namespace.
    Root,
    /// An ordinary user may make a user namespace and be root in it.
    UserNamespaces,
    /// The kernel notifies of mounts (fanotify).
    MountEvents,
    /// The kernel describes single mounts by unique ids (statmount).
    Statmount,
    /// Loop devices can be attached.
    Loop,
    /// ext4 can be made and mounted.
    Ext4,
    /// xfs can be made and mounted.
    Xfs,
    /// btrfs can be made and mounted.
    Btrfs,
    /// A file system can be grown while it is mounted.
    GrowthInUse,
    /// Overlay file systems can be mounted.
    Overlay,
    /// FUSE file systems can be served.
    Fuse,
    /// File systems of huge pages of 2 MiB can be mounted.
    HugePages,
    /// The kernel can serve NFS and mount what is served.
    Nfsd,
    /// Devices can be mapped (dm).
    DeviceMapper,
    /// The resources of a driver can be limited (control groups).
    Limits,
    /// The devices of a container can be limited (BPF on control groups).
    DeviceRules,
    /// runc is installed: tests compare its containers with ours.
    Runc,
    /// The kernel's messages can be read.
    KernelLog,
    /// Virtual machines can use the processor's support.
    Kvm,
    /// This is a guest of the suite, whose power can be cut.
    PowerCut,
}

impl Fact {
    /// Every fact, in the order of the report.
    pub const ALL: [Fact; 20] = [
        Fact::Root,
        Fact::UserNamespaces,
        Fact::MountEvents,
        Fact::Statmount,
        Fact::Loop,
        Fact::Ext4,
        Fact::Xfs,
        Fact::Btrfs,
        Fact::GrowthInUse,
        Fact::Overlay,
        Fact::Fuse,
        Fact::HugePages,
        Fact::Nfsd,
        Fact::DeviceMapper,
        Fact::Limits,
        Fact::DeviceRules,
        Fact::Runc,
        Fact::KernelLog,
        Fact::Kvm,
        Fact::PowerCut,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fact::Root => "root",
            Fact::UserNamespaces => "user namespaces",
            Fact::MountEvents => "mount events",
            Fact::Statmount => "statmount",
            Fact::Loop => "loop",
            Fact::Ext4 => "ext4",
            Fact::Xfs => "xfs",
            Fact::Btrfs => "btrfs",
            Fact::GrowthInUse => "growth in use",
            Fact::Overlay => "overlay",
            Fact::Fuse => "fuse",
            Fact::HugePages => "huge pages",
            Fact::Nfsd => "nfsd",
            Fact::DeviceMapper => "device-mapper",
            Fact::Limits => "limits",
            Fact::DeviceRules => "device rules",
            Fact::Runc => "runc",
            Fact::KernelLog => "kernel log",
            Fact::Kvm => "kvm",
            Fact::PowerCut => "power cut",
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why a fact is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// One fragment: "module `nfsd` is not available".
    pub reason: String,
    /// The command or the change that adds it; empty if nothing does.
    pub fix: String,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// All facts of this process, present and absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    kernel: String,
    found: BTreeMap<Fact, Result<(), Absence>>,
}

/// Why this process cannot grow a file system while it is mounted; `None` if it can. Probes this one fact only.
pub fn absence_of_growth_in_use() -> Option<Absence> {
    probe::growth_in_use().err()
}

/// The control groups that the first [`Facts::get`] of this process makes for a moment. Only if it is killed just then are
/// they left: a ledger that has them before knows.
pub fn probed_groups() -> Vec<PathBuf> {
    probe::groups()
}

impl Facts {
    /// The abilities of this process. The first call probes them, which takes some milliseconds.
    pub fn get() -> &'static Facts {
        static FACTS: OnceLock<Facts> = OnceLock::new();
        FACTS.get_or_init(Facts::probe)
    }

    fn probe() -> Facts {
        let found = Fact::ALL.into_iter().map(|fact| (fact, probe::probe(fact))).collect();
        Facts { kernel: probe::kernel_release(), found }
    }

    /// Made-up facts, for tests of the code that depends on them.
    pub fn made_up(kernel: &str, absent: &[(Fact, Absence)]) -> Facts {
        let mut found: BTreeMap<Fact, Result<(), Absence>> =
            Fact::ALL.into_iter().map(|fact| (fact, Ok(()))).collect();
        found.extend(absent.iter().map(|(fact, absence)| (*fact, Err(absence.clone()))));
        Facts { kernel: kernel.to_owned(), found }
    }

    /// The kernel's release, such as `6.6.21`.
    pub fn kernel(&self) -> &str {
        &self.kernel
    }

    /// Whether a fact is present.
    pub fn has(&self, fact: Fact) -> bool {
        self.why_not(fact).is_none()
    }

    /// Why a fact is absent; `None` if it is present.
    pub fn why_not(&self, fact: Fact) -> Option<&Absence> {
        self.found.get(&fact).and_then(|found| found.as_ref().err())
    }

    /// All facts in order, each with its absence, if it is absent.
    pub fn all(&self) -> impl Iterator<Item = (Fact, Option<&Absence>)> {
        Fact::ALL.into_iter().map(|fact| (fact, self.why_not(fact)))
    }
}

impl fmt::Display for Facts {
    /// `6.6.21, root, loop, ext4, xfs; no nfsd`: the facts that most cases need.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = [
            Fact::Root,
            Fact::Loop,
            Fact::Ext4,
            Fact::Xfs,
            Fact::Btrfs,
            Fact::Fuse,
            Fact::Nfsd,
            Fact::DeviceMapper,
        ];
        f.write_str(&self.kernel)?;
        for fact in shown.iter().filter(|fact| self.has(**fact)) {
            write!(f, ", {fact}")?;
        }
        let mut lead = "; no ";
        for fact in shown.iter().filter(|fact| !self.has(**fact)) {
            write!(f, "{lead}{fact}")?;
            lead = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_facts_come_last() {
        let absence = Absence { reason: "module `nfsd` is not available".into(), fix: String::new() };
        let facts = Facts::made_up("6.6.21", &[(Fact::Nfsd, absence.clone()), (Fact::Btrfs, absence)]);
        assert_eq!(facts.to_string(), "6.6.21, root, loop, ext4, xfs, fuse, device-mapper; no btrfs, nfsd");
    }

    #[test]
    fn probed_root_is_this_user_and_each_absence_has_a_reason() {
        let facts = Facts::get();
        assert_eq!(facts.has(Fact::Root), is_root());
        for (fact, absence) in facts.all() {
            assert!(
                absence.is_none_or(|absence| !absence.reason.is_empty()),
                "{fact} is absent for no reason"
            );
        }
    }
}
