//! Loop devices: attached without a race, detached for certain.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use harness::Layout;
use harness::guard::Guard;
use harness::journal::{Announcement, Journal};
use harness::loop_device::{LoopDevice, LoopOptions, table};
use harness::symbols::Symbols;
use libtest_mimic::{Failed, Trial};

use crate::rooted;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        rooted("loops::many_threads_get_a_device_each", many_threads_get_a_device_each),
        rooted("loops::options_reach_the_kernel", options_reach_the_kernel),
        rooted("loops::a_held_device_names_its_holder", a_held_device_names_its_holder),
        rooted("loops::an_unlocked_device_is_free_for_the_next", an_unlocked_device_is_free_for_the_next),
        rooted("loops::a_free_device_that_was_made_read_only_is_writable", a_free_device_is_writable),
    ]
}

fn many_threads_get_a_device_each() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let device = LoopDevice::create(dir.path(), 1 << 20, &LoopOptions::default()).unwrap();
                    let inode = device.backing().metadata().unwrap().ino();
                    assert_eq!(table::read(device.number()).unwrap().inode, inode, "the device has our file");
                    let before = table::read(device.number()).unwrap();
                    let number = device.number();
                    device.close().unwrap();
                    let now = table::read(number);
                    assert!(now.is_none_or(|now| !now.is_same(&before)), "detached when closed");
                }
            });
        }
    });
    Ok(())
}

fn a_free_device_is_writable() -> Result<(), Failed> {
    let numbers = std::fs::read_dir("/sys/block")?.flatten().filter_map(|disk| {
        let name = disk.file_name().into_string().ok()?;
        name.strip_prefix("loop")?.parse::<u32>().ok()
    });
    // The kernel gives out the lowest number that is free: the highest is not taken meanwhile.
    let Some(number) = numbers.max().filter(|number| !table::is_bound(*number)) else { return Ok(()) };
    let device = format!("/dev/loop{number}");
    assert!(std::process::Command::new("blockdev").args(["--setro", &device]).status()?.success());
    let is_read_only = || std::fs::read_to_string(format!("/sys/block/loop{number}/ro"));
    assert_eq!(is_read_only()?.trim(), "1");
    table::free_from_read_only();
    assert_eq!(is_read_only()?.trim(), "0");
    Ok(())
}

fn options_reach_the_kernel() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let options = LoopOptions {
        read_only: true,
        partitions: true,
        direct_io: true,
        block_size: Some(4096),
        offset: 4096,
    };
    let device = LoopDevice::create(dir.path(), 1 << 20, &options)?;
    let sys = |file: &str| {
        let path = format!("/sys/block/loop{}/{file}", device.number());
        std::fs::read_to_string(path).map(|text| text.trim().to_owned())
    };
    assert_eq!(sys("ro")?, "1");
    assert_eq!(sys("loop/partscan")?, "1");
    assert_eq!(sys("loop/dio")?, "1");
    assert_eq!(sys("loop/autoclear")?, "1");
    assert_eq!(sys("loop/offset")?, "4096");
    assert_eq!(sys("queue/logical_block_size")?, "4096");
    assert!(std::fs::OpenOptions::new().write(true).open(device.path())?.write(b"x").is_err());
    device.close()?;

    let device = LoopDevice::create(dir.path(), 1 << 20, &LoopOptions::default())?;
    device.resize(4 << 20)?;
    let sectors = std::fs::read_to_string(format!("/sys/block/loop{}/size", device.number()))?;
    assert_eq!(sectors.trim(), "8192");
    device.close()?;
    Ok(())
}

fn a_held_device_names_its_holder() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let device = LoopDevice::create(dir.path(), 1 << 20, &LoopOptions::default())?;
    let number = device.number();
    let mut holder =
        std::process::Command::new("sleep").arg("60").stdin(std::fs::File::open(device.path())?).spawn()?;
    let error = device.close().unwrap_err().to_string();
    let expected = format!("cannot detach `loop{number}`: held by sleep[{}]", holder.id());
    holder.kill()?;
    holder.wait()?;
    assert_eq!(error, expected);
    Ok(())
}

/// A lock is no device of the harness: it stays when its last user closes it.
struct Lock(loopdev::LoopDevice);

impl Lock {
    fn over(file: &Path) -> Result<Self, Failed> {
        let device = loopdev::LoopControl::open()?.next_free()?;
        device.with().autoclear(false).attach(file)?;
        Ok(Self(device))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.detach().ok();
    }
}

fn an_unlocked_device_is_free_for_the_next() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let (before, next) = (dir.path().join("before"), dir.path().join("next"));
    for file in [&before, &next] {
        std::fs::File::create(file)?.set_len(1 << 20)?;
    }
    let journal = Journal::new(Symbols::new(Layout::new(dir.path(), dir.path())), None);
    let lock = Lock::over(&next)?;
    let inode = |file: &Path| std::fs::metadata(file).map(|meta| format!("{}:{}", meta.dev(), meta.ino()));
    let unlocked = |held: Option<&Path>, inode: Option<String>| {
        journal.effect(Announcement {
            effect: contracts::event::EffectKind::Unlock,
            path: lock.0.path().unwrap(),
            source: held.map(Path::to_owned),
            fields: inode.map(|inode| ("inode".to_owned(), inode)).into_iter().collect(),
        })
    };
    assert!(unlocked(Some(&before), None), "the next has it by now, and the file of before is let go");
    assert!(!unlocked(Some(&next), None), "it still holds the file it is said to have let go");
    assert!(!unlocked(Some(&next), Some(inode(&next)?)), "it still holds that very file");
    assert!(
        unlocked(Some(&next), Some(inode(&before)?)),
        "a file of that name is held, and it is another one"
    );
    assert!(!unlocked(None, None), "it still holds a file");
    Ok(())
}
