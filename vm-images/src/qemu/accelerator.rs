//! Finds out by a boot whether this machine can run a guest with KVM.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Boot, Guest, GuestError, patient};

/// The time for a guest to boot with KVM before it counts as hung.
const DEADLINE: Duration = Duration::from_secs(8);

/// The way in which a guest's instructions are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The machine's own processor.
    Kvm,
    /// The emulator's translator: everywhere, and about seven times slower.
    Tcg,
}

/// The result, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub accelerator: Accelerator,
    /// The reason, as a fragment.
    pub reason: String,
}

impl Accelerator {
    /// The emulator's arguments. An emulated guest has a clock that counts its instructions: on a busy machine it is slower as
    /// a whole, and no time limit in it, of the kernel or of a driver, runs out for that.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm"],
            Self::Tcg => &["-accel", "tcg,thread=single", "-icount", "shift=3,sleep=on"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// Every emulated processor but the fullest one stalls for seconds in mkfs.
    pub(super) fn processor(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.accelerator {
            Accelerator::Kvm => "KVM",
            Accelerator::Tcg => "emulation",
        };
        write!(f, "{name}: {}", self.reason)
    }
}

/// Finds out by booting `boot` under KVM; the answer is kept in `remembered` until the machine, its kernel
/// or the emulator changes.
pub fn probe(boot: &Boot, remembered: &Path) -> Verdict {
    if let Some(reason) = hopeless() {
        return Verdict { accelerator: Accelerator::Tcg, reason };
    }
    let key = key(&boot.qemu);
    if let Some(verdict) = recall(remembered, &key) {
        return verdict;
    }
    let attempt = Boot { accelerator: Accelerator::Kvm, ..boot.clone() };
    let verdict = match Guest::boot(&attempt, DEADLINE, &patient) {
        Ok((guest, _)) => {
            guest.cut_power();
            Verdict { accelerator: Accelerator::Kvm, reason: "a guest came up on it".to_owned() }
        }
        Err(GuestError::NoHello { .. }) => tcg(format!("a guest under KVM hung for {}s", DEADLINE.as_secs())),
        Err(error) => tcg(format!("a guest under KVM failed: {error}")),
    };
    // A verdict that cannot be kept is found again next time.
    let _ = fs::write(remembered, format!("{key}\n{}\n{}\n", verdict.accelerator.name(), verdict.reason));
    verdict
}

fn tcg(reason: String) -> Verdict {
    Verdict { accelerator: Accelerator::Tcg, reason }
}

/// Why there is no use in trying, if there is none.
fn hopeless() -> Option<String> {
    let device = Path::new("/dev/kvm");
    if !device.exists() {
        return Some("there is no /dev/kvm".to_owned());
    }
    if Path::new("/sys/module/kvm_pvm").exists() {
        return Some("this machine's KVM runs only kernels made for it (kvm_pvm)".to_owned());
    }
    let opened = OpenOptions::new().read(true).write(true).open(device);
    opened.err().map(|error| format!("/dev/kvm cannot be opened: {error}"))
}

fn key(qemu: &Path) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let stamp = fs::metadata(qemu).and_then(|meta| meta.modified()).map(|time| format!("{time:?}"));
    [
        read("/proc/sys/kernel/random/boot_id"),
        read("/proc/sys/kernel/osrelease"),
        PathBuf::from(qemu).display().to_string(),
        stamp.unwrap_or_default(),
    ]
    .join(" ")
}

fn recall(remembered: &Path, key: &str) -> Option<Verdict> {
    let kept = fs::read_to_string(remembered).ok()?;
    let mut lines = kept.lines();
    if lines.next() != Some(key) {
        return None;
    }
    let accelerator = match lines.next()? {
        "kvm" => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    };
    Some(Verdict { accelerator, reason: lines.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_recalled_for_the_same_machine_only() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("accelerator");
        fs::write(&kept, "here\nkvm\na guest came up on it\n").unwrap();
        assert_eq!(recall(&kept, "here").unwrap().accelerator, Accelerator::Kvm);
        assert_eq!(recall(&kept, "elsewhere"), None);
    }
}
