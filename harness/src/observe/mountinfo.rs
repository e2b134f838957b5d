//! `/proc/thread-self/mountinfo`: our own reading of it, independent of the volume manager's.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::{Device, Mount, MountId, ObserveError};

/// Every line of the table, in its order.
pub(crate) fn parse(table: &[u8]) -> Result<Vec<Mount>, ObserveError> {
    table
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line)
                .ok_or_else(|| ObserveError::Line { line: String::from_utf8_lossy(line).into_owned() })
        })
        .collect()
}

/// `36 35 98:0 /root /target rw,noatime shared:1 master:2 - ext4 /dev/vda rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut dev = fields.next()?.splitn(2, |byte| *byte == b':');
    let dev = Device { major: number(dev.next()?)? as u32, minor: number(dev.next()?)? as u32 };
    let root = path(fields.next()?);
    let target = path(fields.next()?);
    let opts = text(fields.next()?);
    let mut tags = Vec::new();
    // `propagate_from` depends on the reader's root, so it is left out.
    for tag in fields.by_ref().take_while(|tag| *tag != b"-") {
        if !tag.starts_with(b"propagate_from:") {
            tags.push(text(tag));
        }
    }
    Some(Mount {
        id: MountId(id),
        parent: MountId(parent),
        target,
        root,
        fstype: text(fields.next()?),
        source: text(fields.next()?),
        opts,
        super_opts: text(fields.next()?),
        dev,
        rdev: None,
        propagation: tags.join(" "),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Undoes the kernel's `\ooo` for white space, backslash and `#`.
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_everything_in_it() {
        let line = b"36 35 98:3 /a\\040b /mnt/c\\134d ro,nosuid shared:1 master:2 propagate_from:3 unbindable - fuse.x none rw,a=b\n";
        let mount = &parse(line).unwrap()[0];
        assert_eq!(mount.root, PathBuf::from("/a b"));
        assert_eq!(mount.target, PathBuf::from("/mnt/c\\d"));
        assert_eq!(mount.propagation, "shared:1 master:2 unbindable");
        assert_eq!((mount.dev.major, mount.dev.minor), (98, 3));
        assert_eq!((mount.fstype.as_str(), mount.super_opts.as_str()), ("fuse.x", "rw,a=b"));
    }

    #[test]
    fn a_cut_line_is_an_error() {
        assert!(parse(b"36 35 98:3 / /mnt rw - ext4 /dev/vda\n").is_err());
    }
}
