//! Command lines of the disk tools, and the meaning of their exit codes and output (07 §9). Touches nothing.

use std::path::Path;

use crate::error::{HostError, Result};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

fn tool(program: &str, words: &[&str], path: &Path) -> Tool {
    let path = path.to_string_lossy().into_owned();
    let arguments = words.iter().map(|word| (*word).to_owned()).chain([path]).collect();
    Tool { program: program.to_owned(), arguments }
}

/// blkid's low-level probe.
pub(crate) fn probe(device: &Path) -> Tool {
    tool("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"], device)
}

/// Parses blkid's answer. `None`: it failed, or its output is malformed.
pub(crate) fn read_probe(code: Option<i32>, output: &str) -> Option<DiskContent> {
    match code {
        Some(0) => read_export(output),
        // "No tags found": an empty disk.
        Some(2) => Some(DiskContent::Nothing),
        _ => None,
    }
}

/// `KEY=value` lines. `None` if a line is not one key, one `=` and one value.
fn read_export(output: &str) -> Option<DiskContent> {
    let (mut fs_type, mut partitions) = (String::new(), false);
    for line in output.lines().filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once('=').filter(|(_, value)| !value.contains('='))?;
        match key {
            "TYPE" => value.clone_into(&mut fs_type),
            "PTTYPE" => partitions = !value.is_empty(),
            _ => {}
        }
    }
    Some(match (partitions, fs_type.is_empty()) {
        (true, _) => DiskContent::Partitions,
        (false, true) => DiskContent::Nothing,
        (false, false) => DiskContent::FileSystem(fs_type),
    })
}

/// fsck with the safe repairs.
pub(crate) fn check(device: &Path) -> Tool {
    tool("fsck", &["-a"], device)
}

/// The kubelet's reading of fsck's exit codes. 127 is the shell's code for a missing tool.
pub(crate) fn read_check(code: Option<i32>, output: String) -> CheckOutcome {
    match code {
        Some(0) => CheckOutcome::Clean,
        Some(1) => CheckOutcome::Corrected,
        Some(4) => CheckOutcome::Uncorrected { output },
        Some(127) => CheckOutcome::NoTool,
        code => CheckOutcome::Failed { code, output },
    }
}

/// `mkfs.<type>`.
pub(crate) fn make(make: &MakeFilesystem) -> Tool {
    Tool { program: format!("mkfs.{}", make.fs_type), arguments: make.arguments() }
}

/// The tool that grows this type.
pub(crate) fn grow(grow: &Grow) -> Result<Tool> {
    match grow.fs_type.as_str() {
        "ext2" | "ext3" | "ext4" => Ok(tool("resize2fs", &[], &grow.device)),
        "xfs" => Ok(tool("xfs_growfs", &["-d"], &grow.mounted_at)),
        "btrfs" => Ok(tool("btrfs", &["filesystem", "resize", "max"], &grow.mounted_at)),
        _ => Err(HostError::CannotGrow { device: grow.device.clone(), fs_type: grow.fs_type.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blkid_output_is_parsed() {
        let (nothing, partitions) = (Some(DiskContent::Nothing), Some(DiskContent::Partitions));
        let rows = [
            (Some(2), "", nothing.clone()),
            (Some(0), "DEVNAME=/dev/loop0\n", nothing),
            (Some(0), "DEVNAME=/dev/loop0\nTYPE=ext4\n", Some(DiskContent::FileSystem("ext4".into()))),
            (Some(0), "DEVNAME=/dev/loop0\nPTTYPE=dos\n", partitions.clone()),
            (Some(0), "TYPE=ext4\nPTTYPE=gpt\n", partitions),
            (Some(0), "TYPE=ext4\nnonsense\n", None),
            (Some(0), "TYPE=a=b\n", None),
            (Some(8), "", None),
            (None, "", None),
        ];
        for (code, output, expected) in rows {
            assert_eq!(read_probe(code, output), expected, "{code:?} {output:?}");
        }
    }

    #[test]
    fn fsck_exit_codes_are_read_as_the_kubelet_reads_them() {
        let text = || "left".to_owned();
        let rows = [
            (Some(0), CheckOutcome::Clean),
            (Some(1), CheckOutcome::Corrected),
            (Some(2), CheckOutcome::Failed { code: Some(2), output: text() }),
            (Some(4), CheckOutcome::Uncorrected { output: text() }),
            (Some(8), CheckOutcome::Failed { code: Some(8), output: text() }),
            (Some(127), CheckOutcome::NoTool),
            (None, CheckOutcome::Failed { code: None, output: text() }),
        ];
        for (code, expected) in rows {
            assert_eq!(read_check(code, text()), expected, "{code:?}");
        }
    }

    #[test]
    fn commands_are_the_kubelets() {
        let order = |fs_type: &str| MakeFilesystem {
            device: "/dev/d".into(),
            fs_type: fs_type.to_owned(),
            options: vec!["-O".to_owned(), "x".to_owned()],
        };
        let grow = |fs_type: &str| Grow {
            device: "/dev/d".into(),
            fs_type: fs_type.to_owned(),
            mounted_at: "/m".into(),
        };
        let words = |tool: Tool| format!("{} {}", tool.program, tool.arguments.join(" "));
        for (tool, expected) in [
            (probe("/dev/d".as_ref()), "blkid -p -s TYPE -s PTTYPE -o export /dev/d"),
            (check("/dev/d".as_ref()), "fsck -a /dev/d"),
            (make(&order("ext3")), "mkfs.ext3 -O x -F -m0 /dev/d"),
            (make(&order("ext4")), "mkfs.ext4 -O x -F -m0 /dev/d"),
            (make(&order("xfs")), "mkfs.xfs -O x -f /dev/d"),
            (make(&order("btrfs")), "mkfs.btrfs -O x /dev/d"),
            (grow_ok(&grow("ext4")), "resize2fs /dev/d"),
            (grow_ok(&grow("xfs")), "xfs_growfs -d /m"),
            (grow_ok(&grow("btrfs")), "btrfs filesystem resize max /m"),
        ] {
            assert_eq!(words(tool), expected);
        }
        assert!(matches!(super::grow(&grow("vfat")), Err(HostError::CannotGrow { .. })));
    }

    fn grow_ok(order: &Grow) -> Tool {
        super::grow(order).unwrap()
    }
}
