//! One probe a fact. Each undoes what it did before it answers, and leaves the namespaces of this process alone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use oci_spec::runtime::Spec;

use super::{Absence, Fact};
use crate::cgroup::{self, Cgroup, Limits};
use crate::container::{self, DeviceGroup};
use crate::guard::Guard;
use crate::kernel_log::KernelLog;
use crate::loop_device::{LoopDevice, LoopOptions};
use crate::observe::{MountWatch, Witness};
use crate::standing::{Standing, is_root, standing};

type Answer = Result<(), Absence>;

pub(super) fn probe(fact: Fact) -> Answer {
    match fact {
        Fact::Root => root(),
        Fact::UserNamespaces => user_namespaces(),
        Fact::MountEvents => mount_events(),
        Fact::Statmount => statmount(),
        Fact::Loop => loop_device(),
        Fact::Ext4 => made_and_mounted("ext4", "apt-get install e2fsprogs"),
        Fact::Xfs => made_and_mounted("xfs", "apt-get install xfsprogs"),
        Fact::Btrfs => made_and_mounted("btrfs", "apt-get install btrfs-progs"),
        Fact::GrowthInUse => growth_in_use(),
        Fact::Overlay => file_system("overlay"),
        Fact::Fuse => fuse(),
        Fact::HugePages => huge_pages(),
        Fact::Nfsd => nfsd(),
        Fact::DeviceMapper => device_mapper(),
        Fact::Limits => limits(),
        Fact::DeviceRules => device_rules(),
        Fact::Runc => runc(),
        Fact::KernelLog => kernel_log(),
        Fact::Kvm => kvm(),
        Fact::PowerCut => power_cut(),
    }
}

pub(super) fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn absent(reason: impl Into<String>, fix: impl Into<String>) -> Answer {
    Err(Absence { reason: reason.into(), fix: fix.into() })
}

fn root() -> Answer {
    match standing() {
        Standing::Root => {}
        Standing::NamespaceRoot => {
            let why = "you are root of a user namespace, and to the machine an ordinary user";
            return absent(why, "run it outside of that, as root");
        }
        Standing::User => return absent("you are not root", "run it with sudo"),
    }
    match in_child(|| unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID).is_ok()) {
        true => Ok(()),
        false => {
            absent("root may not make a mount namespace here", "in a container: start it with `--privileged`")
        }
    }
}

fn user_namespaces() -> Answer {
    // Being root in a namespace is not enough: some distributions let one be made and then forbid all in it.
    let works = in_child(|| {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).is_ok()
            && nix::mount::mount(
                None::<&str>,
                "/",
                None::<&str>,
                nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE,
                None::<&str>,
            )
            .is_ok()
    });
    if works {
        return Ok(());
    }
    absent(
        "user namespaces are forbidden",
        "sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0",
    )
}

pub(super) fn growth_in_use() -> Answer {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match is_root() && has_capability(&status, CAP_SYS_RESOURCE) {
        true => Ok(()),
        false => absent(
            "the kernel lets only a process with CAP_SYS_RESOURCE grow an ext4 that is mounted, and this one is without it",
            "run it as root, in a container with `--cap-add SYS_RESOURCE`",
        ),
    }
}

/// The number of a capability, by capabilities(7).
const CAP_SYS_RESOURCE: u32 = 24;

/// Whether a capability is in effect, by the text of a process's status.
fn has_capability(status: &str, number: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    set >> number & 1 == 1
}

fn mount_events() -> Answer {
    let is_notified = || MountWatch::start_with(Witness::Fanotify).is_ok();
    // An ordinary user may ask in a namespace of its own alone.
    let namespaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS;
    let works =
        if is_root() { is_notified() } else { in_child(|| unshare(namespaces).is_ok() && is_notified()) };
    match works {
        true => Ok(()),
        false => absent("the kernel does not notify of mounts (Linux 6.15 does)", "use a newer kernel"),
    }
}

fn statmount() -> Answer {
    match crate::observe::has_statmount() {
        true => Ok(()),
        false => absent("the kernel has no statmount (Linux 6.8 has)", "use a newer kernel"),
    }
}

fn loop_device() -> Answer {
    if !is_root() {
        return absent("loop devices need root", "run it with sudo");
    }
    let backing = rustix::fs::memfd_create("volproof-probe", rustix::fs::MemfdFlags::CLOEXEC);
    let backing = match backing.map_err(io::Error::from).and_then(|fd| {
        let file = File::from(fd);
        file.set_len(64 << 10).map(|()| file)
    }) {
        Ok(file) => file,
        Err(error) => return absent(format!("memory files do not work: {error}"), ""),
    };
    let device = LoopDevice::over(backing, &LoopOptions::default()).map_err(|error| Absence {
        reason: with_cause(&error),
        fix: "modprobe loop; in a container: `--privileged -v /dev:/dev`".to_owned(),
    })?;
    device.close().or_else(|error| absent(with_cause(&error), ""))
}

fn made_and_mounted(fstype: &str, install: &str) -> Answer {
    file_system(fstype)?;
    if !is_root() {
        return absent(format!("mounting {fstype} needs root"), "run it with sudo");
    }
    let tool = format!("mkfs.{fstype}");
    match program(&tool) {
        Some(_) => Ok(()),
        None => absent(format!("`{tool}` is not installed"), install),
    }
}

/// The path of a program, also where an ordinary user's PATH does not look.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// This user's PATH, and then the system's directories: `su` leaves root without those of `mkfs` and `mount.nfs`.
pub fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let missing: Vec<PathBuf> = system.into_iter().filter(|directory| !all.contains(directory)).collect();
    all.extend(missing);
    // They came from such a list, or have no colon.
    std::env::join_paths(all).unwrap_or(path)
}

fn file_system(fstype: &str) -> Answer {
    // Opening a context loads the module if there is one, as a mount would.
    let known = rustix::mount::fsopen(fstype, rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
        || fs::read_to_string("/proc/filesystems")
            .is_ok_and(|list| list.lines().any(|line| line.split('\t').next_back() == Some(fstype)));
    match known {
        true => Ok(()),
        false => absent(format!("module `{fstype}` is not available"), modprobe(fstype)),
    }
}

/// Whether files in huge pages can be had; none need be set aside to mount their file system.
fn huge_pages() -> Answer {
    root()?;
    if !Path::new(HUGE_PAGES).is_dir() {
        let fix = "a kernel of x86-64, or of another processor with such pages, that has CONFIG_HUGETLBFS";
        return absent("the kernel has no huge pages of 2 MiB", fix);
    }
    file_system("hugetlbfs")
}

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// The command that loads a module, or the remark that this kernel has none to load.
fn modprobe(module: &str) -> String {
    let modules = format!("/lib/modules/{}", kernel_release());
    match fs::exists(modules).unwrap_or(false) {
        true => format!("modprobe {module}"),
        false => "this kernel has no modules: `--tier vm` brings its own".to_owned(),
    }
}

fn fuse() -> Answer {
    file_system("fuse")?;
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Ok(()),
        Err(error) => {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run as root, or let your user open it: `chmod 666 /dev/fuse`"
                }
                _ => "modprobe fuse; in a container: `--device /dev/fuse`",
            };
            absent(format!("cannot open `/dev/fuse`: {error}"), fix)
        }
    }
}

fn nfsd() -> Answer {
    if !is_root() {
        return absent("the kernel's NFS server needs root", "run it with sudo");
    }
    for module in ["nfsd", "nfs"] {
        file_system(module)?;
    }
    if program("mount.nfs").is_none() {
        return absent("`mount.nfs` is not installed", "apt-get install nfs-common; or `--tier vm`");
    }
    match crate::nfs_export::is_in_use() {
        false => Ok(()),
        true => absent("this machine serves NFS itself", "`--tier vm` has a server of its own"),
    }
}

fn device_mapper() -> Answer {
    if !is_root() {
        return absent("device-mapper needs root", "run it with sudo");
    }
    let fix = modprobe("dm-mod");
    let control = match OpenOptions::new().read(true).write(true).open("/dev/mapper/control") {
        Ok(control) => control,
        Err(error) => return absent(format!("cannot open `/dev/mapper/control`: {error}"), fix),
    };
    // A `struct dm_ioctl` of version 4.0.0 and its own length, and nothing else in it: asks for the version.
    let mut request = [0u32; 78];
    request[0] = 4;
    request[3] = 312;
    const DM_VERSION: libc::Ioctl = 0xc138_fd00_u32 as libc::Ioctl;
    // SAFETY: DM_VERSION reads and writes `data_size` bytes, which is the length of `request`.
    match unsafe { libc::ioctl(control.as_raw_fd(), DM_VERSION, request.as_mut_ptr()) } {
        0 => Ok(()),
        _ => absent(format!("device-mapper does not answer: {}", io::Error::last_os_error()), fix),
    }
}

fn group_name() -> String {
    format!("volproof-probe-{}", std::process::id())
}

fn device_group_name() -> String {
    format!("volproof-probe-devices-{}", std::process::id())
}

/// Each place at which this process may make a control group for a moment.
pub(super) fn groups() -> Vec<PathBuf> {
    [group_name(), device_group_name()].iter().flat_map(|name| cgroup::everywhere(name)).collect()
}

fn limits() -> Answer {
    if !is_root() {
        return absent("limits on a driver's processes and memory need root", "run it with sudo");
    }
    let limits = Limits { tasks: 16, memory: 64 << 20 };
    let made = Cgroup::create(&group_name(), limits);
    match made {
        Ok(cgroup) => cgroup.close().or_else(|error| absent(with_cause(&error), "")),
        Err(error) => absent(
            format!("{}; a driver that forks without end would reach the machine's", with_cause(&error)),
            "mount control groups with the controllers `pids` and `memory`; in a container: `--privileged --cgroupns=host`",
        ),
    }
}

fn device_rules() -> Answer {
    if !is_root() {
        return absent("limits on the devices of a container need root", "run it with sudo");
    }
    let made = container::device_group(&device_group_name())
        .and_then(|path| DeviceGroup::create(&path, &Spec::default()));
    match made {
        Ok(group) => group.close().or_else(|error| absent(with_cause(&error), "")),
        Err(error) => absent(
            format!("{}; a container could use any device it can name", with_cause(&error)),
            "mount -t cgroup2 none /sys/fs/cgroup/unified; in a container: `--privileged --cgroupns=host`",
        ),
    }
}

fn runc() -> Answer {
    match std::process::Command::new("runc").arg("--version").output() {
        Ok(ran) if ran.status.success() => Ok(()),
        _ => absent("`runc` is not installed: no second opinion on containers", "apt-get install runc"),
    }
}

fn kernel_log() -> Answer {
    match KernelLog::start() {
        Ok(_) => Ok(()),
        Err(error) => absent(with_cause(&error), "run it with sudo, or `sysctl -w kernel.dmesg_restrict=0`"),
    }
}

fn power_cut() -> Answer {
    match super::in_guest() {
        true => Ok(()),
        false => absent("the power of this machine is not ours to cut", "`--tier vm`: a guest's is"),
    }
}

fn kvm() -> Answer {
    let kvm = match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(kvm) => kvm,
        Err(error) => {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "become a member of the group that `/dev/kvm` belongs to, often kvm"
                }
                _ => "virtual machines run without it, slower",
            };
            return absent(format!("cannot open `/dev/kvm`: {error}"), fix);
        }
    };
    if Path::new("/sys/module/kvm_pvm").exists() {
        return absent(
            "this machine's KVM runs only kernels made for it (kvm_pvm)",
            "virtual machines run without it, slower",
        );
    }
    const KVM_CREATE_VM: libc::Ioctl = 0xae01;
    // SAFETY: KVM_CREATE_VM takes a number and returns a descriptor.
    let vm = unsafe { libc::ioctl(kvm.as_raw_fd(), KVM_CREATE_VM, 0) };
    if vm < 0 {
        return absent(
            format!("no virtual machine can be created: {}", io::Error::last_os_error()),
            "virtual machines run without it, slower",
        );
    }
    // SAFETY: the descriptor was just returned to us alone.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(vm) });
    Ok(())
}

fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Does something in a process of its own, which it may leave in any state, and says whether it worked.
fn in_child(attempt: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child makes system calls and, in one probe, allocates, which the C library keeps possible
    // after a fork; it ends without running anything of ours.
    match unsafe { nix::unistd::fork() } {
        Ok(nix::unistd::ForkResult::Child) => {
            let code = i32::from(!attempt());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
        }
        Ok(nix::unistd::ForkResult::Parent { child }) => loop {
            match nix::sys::wait::waitpid(child, None) {
                Ok(nix::sys::wait::WaitStatus::Exited(_, code)) => return code == 0,
                Err(nix::errno::Errno::EINTR) => {}
                _ => return false,
            }
        },
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_is_a_bit_of_the_effective_set() {
        let status = "Name:\tinit\nCapPrm:\t000001ffffffffff\nCapEff:\t000001fffeffffff\n";
        assert!(!has_capability(status, CAP_SYS_RESOURCE));
        assert!(has_capability(status, CAP_SYS_RESOURCE - 1));
        assert!(!has_capability("", CAP_SYS_RESOURCE));
    }
}
