//! `mount.nfs`: turns the arguments of mount(8) into the system call that mounts an export.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

use nix::mount::MsFlags;

/// Options that are no data of the file system, and their flags.
const FLAGS: &[(&str, MsFlags)] = &[
    ("ro", MsFlags::MS_RDONLY),
    ("nosuid", MsFlags::MS_NOSUID),
    ("nodev", MsFlags::MS_NODEV),
    ("noexec", MsFlags::MS_NOEXEC),
    ("noatime", MsFlags::MS_NOATIME),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("relatime", MsFlags::MS_RELATIME),
    ("sync", MsFlags::MS_SYNCHRONOUS),
];

/// Words of mount(8) and fstab(5) that change nothing here.
const NOTHING: &[&str] =
    &["rw", "defaults", "_netdev", "auto", "noauto", "nofail", "suid", "dev", "exec", "async"];

/// `SERVER:PATH DIRECTORY [-o OPTIONS]`.
pub(super) fn mount(words: &[String]) -> Result<(), String> {
    let call = Call::parse(words)?;
    let addresses = (call.server.as_str(), 0).to_socket_addrs();
    let address = addresses.ok().and_then(|mut found| found.next()).map(|found| found.ip());
    let address = address.ok_or_else(|| format!("cannot resolve `{}`", call.server))?;
    nix::mount::mount(
        Some(call.source.as_str()),
        &call.directory,
        Some("nfs"),
        call.flags,
        Some(call.data(address).as_str()),
    )
    .map_err(|errno| format!("mounting {} on {}: {}", call.source, call.directory.display(), errno.desc()))
}

#[derive(Debug, PartialEq)]
struct Call {
    source: String,
    server: String,
    directory: PathBuf,
    flags: MsFlags,
    options: Vec<String>,
}

impl Call {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut plain = Vec::new();
        let mut given = String::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-o" => given.clone_from(words.next().ok_or("-o wants options")?),
                flag if flag.starts_with('-') => {}
                _ => plain.push(word.clone()),
            }
        }
        let [source, directory] = plain.as_slice() else {
            return Err("wants SERVER:PATH and a directory".to_owned());
        };
        let server = match source.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
            Some((server, _)) => server,
            None => source.split_once(':').ok_or_else(|| format!("`{source}` names no server"))?.0,
        };
        let (mut flags, mut options) = (MsFlags::empty(), Vec::new());
        for option in given.split(',').filter(|option| !option.is_empty() && !NOTHING.contains(option)) {
            match FLAGS.iter().find(|(name, _)| *name == option) {
                Some((_, flag)) => flags |= *flag,
                None => options.push(option.to_owned()),
            }
        }
        Ok(Self {
            source: source.clone(),
            server: server.to_owned(),
            directory: directory.into(),
            flags,
            options,
        })
    }

    /// The mount data for the kernel: mount(8) has the server's name, and the kernel needs its address.
    fn data(&self, address: IpAddr) -> String {
        let version = |option: &String| {
            option.strip_prefix("vers=").or_else(|| option.strip_prefix("nfsvers=")).map(str::to_owned)
        };
        let asked = self.options.iter().find_map(version);
        let version = asked.clone().unwrap_or_else(|| "4.2".to_owned());
        let mut data = self.options.clone();
        if asked.is_none() {
            data.push(format!("vers={version}"));
        }
        data.push(format!("addr={address}"));
        if version.starts_with('4') {
            // The address servers call back on; no server here hands out delegations to wait for.
            data.push(format!("clientaddr={}", if address.is_loopback() { "127.0.0.1" } else { "0.0.0.0" }));
        } else {
            data.push(format!("mountaddr={address},mountvers=3,mountproto=tcp,proto=tcp"));
            if !self.options.iter().any(|option| option == "lock" || option == "nolock") {
                // A guest has no lock daemon of its own.
                data.push("nolock".to_owned());
            }
        }
        data.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, flags: MsFlags, data: &str) {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let call = Call::parse(&words).unwrap();
        assert_eq!((call.flags, call.data([127, 0, 0, 1].into()).as_str()), (flags, data));
    }

    #[test]
    fn names_become_addresses_and_words_become_flags() {
        let v4 = "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1";
        check("127.0.0.1:/ /mnt -o rw,_netdev", MsFlags::empty(), v4);
        check("127.0.0.1:/ /mnt -o ro,vers=4.2", MsFlags::MS_RDONLY, v4);
        check(
            "127.0.0.1:/data /mnt -o nfsvers=3,soft",
            MsFlags::empty(),
            "nfsvers=3,soft,addr=127.0.0.1,mountaddr=127.0.0.1,mountvers=3,mountproto=tcp,proto=tcp,nolock",
        );
    }

    #[test]
    fn export_without_a_server_is_refused() {
        let words = ["/data".to_owned(), "/mnt".to_owned()];
        assert_eq!(Call::parse(&words).unwrap_err(), "`/data` names no server");
        let words = ["[::1]:/data".to_owned(), "/mnt".to_owned()];
        assert_eq!(Call::parse(&words).unwrap().server, "::1");
    }
}
