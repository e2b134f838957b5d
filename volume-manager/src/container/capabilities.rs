//! Capabilities of a container's root user. Pure.

use std::collections::BTreeSet;

use api::runtime::Powers;

use super::ContainerError;

/// The capabilities of a container that asks for none.
const USUAL: &str = "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID \
    SETPCAP SETUID SYS_CHROOT";

/// All capabilities of the kernel.
const ALL: &str = "AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE \
    DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN \
    MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID \
    SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE \
    SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM";

/// The default and the added capabilities without the dropped ones; all if the container is privileged.
pub(super) fn of(privileged: bool, powers: &Powers) -> Result<BTreeSet<String>, ContainerError> {
    let set = |names: &str| names.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    let every = set(ALL);
    let take = |names: &[String]| {
        let plain = names.iter().map(|name| name.strip_prefix("CAP_").unwrap_or(name).to_owned());
        let (all, names): (BTreeSet<_>, BTreeSet<_>) = plain.partition(|name| name == "ALL");
        match names.difference(&every).next() {
            Some(unknown) => Err(ContainerError::Capability(unknown.clone())),
            None => Ok((!all.is_empty(), names)),
        }
    };
    let ((add_all, add), (drop_all, drop)) = (take(&powers.add)?, take(&powers.drop)?);
    if privileged {
        return Ok(every);
    }
    let usual = match (add_all, drop_all) {
        (_, true) => BTreeSet::new(),
        (true, false) => every,
        (false, false) => set(USUAL),
    };
    Ok(usual.union(&add).filter(|name| !drop.contains(*name)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn capabilities_are_dropped_and_added() {
        let with = |add: &str, drop: &str| {
            let powers = Powers { add: names(add), drop: names(drop), ..Powers::default() };
            of(false, &powers).unwrap().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(with("", ""), names(USUAL));
        assert_eq!(with("SYS_TIME CAP_CHOWN", "ALL"), ["CHOWN", "SYS_TIME"]);
        assert_eq!(with("ALL", ""), names(ALL));
        assert_eq!(with("ALL", "SYS_ADMIN").len(), names(ALL).len() - 1);
        assert_eq!(with("NET_RAW", "NET_RAW").len(), names(USUAL).len() - 1);
    }

    #[test]
    fn privileged_container_has_all_and_unknown_capability_is_refused() {
        let mut powers = Powers { drop: names("ALL"), ..Powers::default() };
        assert_eq!(of(true, &powers).unwrap().len(), names(ALL).len());
        powers.add = names("SYS_MAGIC");
        let error = of(false, &powers).unwrap_err().to_string();
        assert_eq!(error, "the kernel knows no capability \"SYS_MAGIC\"");
    }
}
