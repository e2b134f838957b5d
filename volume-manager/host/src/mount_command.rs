//! The command lines of mount(8) and umount(8), word for word the kubelet's (07 §1 to §3). Touches nothing.

use std::path::Path;

use crate::door::Bind;
use crate::options::{MountOptions, MountSpec};

/// A command line, with a second form for logs and errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountCommand {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// The arguments joined by blanks, sensitive options masked.
    pub(crate) shown: String,
}

impl MountCommand {
    /// `mount [-t type] [-o options] [source] target`
    pub(crate) fn mount(spec: &MountSpec) -> Self {
        let arguments = |options: String| {
            let mut arguments = Vec::new();
            if let Some(fs_type) = &spec.fs_type {
                arguments.extend(["-t".to_owned(), fs_type.clone()]);
            }
            if !options.is_empty() {
                arguments.extend(["-o".to_owned(), options]);
            }
            if !spec.source.is_empty() {
                arguments.push(spec.source.clone());
            }
            arguments.push(text(&spec.target));
            arguments
        };
        let shown = arguments(spec.options.masked_joined()).join(" ");
        Self { program: "mount".to_owned(), arguments: arguments(spec.options.expose_joined()), shown }
    }

    /// `mount -o bind[,_netdev] source target`
    pub(crate) fn bind(bind: &Bind) -> Self {
        let mut options = if bind.recursive { "rbind" } else { "bind" }.to_owned();
        if bind.netdev {
            options.push_str(",_netdev");
        }
        let arguments = vec!["-o".to_owned(), options, text(&bind.source), text(&bind.target)];
        Self { program: "mount".to_owned(), shown: arguments.join(" "), arguments }
    }

    /// `mount -o bind,remount[,options] source target`
    pub(crate) fn remount_bind(source: &Path, target: &Path, options: &MountOptions) -> Self {
        let arguments = |options: String| {
            let comma = if options.is_empty() { "" } else { "," };
            let options = format!("bind,remount{comma}{options}");
            vec!["-o".to_owned(), options, text(source), text(target)]
        };
        let shown = arguments(options.masked_joined()).join(" ");
        Self { program: "mount".to_owned(), arguments: arguments(options.expose_joined()), shown }
    }

    /// `umount [-f] target`
    pub(crate) fn unmount(target: &Path, force: bool) -> Self {
        let flag = force.then(|| "-f".to_owned());
        let arguments: Vec<String> = flag.into_iter().chain([text(target)]).collect();
        Self { program: "umount".to_owned(), shown: arguments.join(" "), arguments }
    }

    /// The command in a transient scope: a process it leaves behind outlives the node's.
    pub(crate) fn in_systemd_scope(self, target: &Path) -> Self {
        let description = format!("--description=Kubernetes transient mount for {}", target.display());
        let words = [description, "--scope".to_owned(), "--".to_owned(), self.program];
        let shown = format!("{} {}", words.join(" "), self.shown);
        let arguments = words.into_iter().chain(self.arguments).collect();
        Self { program: "systemd-run".to_owned(), arguments, shown }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> MountSpec {
        let mut options = MountOptions::new(["vers=3", "soft"]);
        options.push_sensitive("password=x");
        MountSpec::new("server:/data", "/var/lib/kubelet/a", "cifs").with_options(options)
    }

    #[test]
    fn commands_are_the_kubelets() {
        let words = |command: MountCommand| format!("{} {}", command.program, command.arguments.join(" "));
        let bind = Bind { netdev: true, ..Bind::new("/s", "/t") };
        let none = MountOptions::default();
        let ro = MountOptions::new(["ro", "nodev"]);
        for (command, expected) in [
            (
                MountCommand::mount(&spec()),
                "mount -t cifs -o vers=3,soft,password=x server:/data /var/lib/kubelet/a",
            ),
            (MountCommand::mount(&MountSpec::new("", "/t", "tmpfs")), "mount -t tmpfs /t"),
            (MountCommand::bind(&Bind::new("/s", "/t")), "mount -o bind /s /t"),
            (MountCommand::bind(&bind), "mount -o bind,_netdev /s /t"),
            (MountCommand::remount_bind("/s".as_ref(), "/t".as_ref(), &none), "mount -o bind,remount /s /t"),
            (
                MountCommand::remount_bind("/s".as_ref(), "/t".as_ref(), &ro),
                "mount -o bind,remount,ro,nodev /s /t",
            ),
            (MountCommand::unmount("/t".as_ref(), false), "umount /t"),
            (MountCommand::unmount("/t".as_ref(), true), "umount -f /t"),
            (
                MountCommand::mount(&MountSpec::new("d", "/t", "xfs")).in_systemd_scope("/t".as_ref()),
                "systemd-run --description=Kubernetes transient mount for /t --scope -- mount -t xfs d /t",
            ),
        ] {
            assert_eq!(words(command), expected);
        }
    }

    #[test]
    fn shown_arguments_have_no_secrets() {
        let plain = MountCommand::mount(&spec());
        assert_eq!(plain.shown, "-t cifs -o vers=3,soft,<masked> server:/data /var/lib/kubelet/a");
        assert!(!plain.in_systemd_scope("/t".as_ref()).shown.contains("password"));
    }
}
