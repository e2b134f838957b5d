//! The fake host behaves like the real one: both get the same random calls, and every answer, and after each
//! call the whole tree, must agree.
//!
//! `HOST_SEEDS=N` runs N sequences, `HOST_FIRST_SEED=S` starts at seed S.

mod order;

use std::path::{Path, PathBuf};

use host::fake::FakeHost;
use host::linux::LinuxHost;
use host::{FileKind, Host};
use order::{Order, sequence};

use crate::namespace::in_namespace;
use crate::random::{self, Random};

const LENGTH: usize = 40;

#[test]
fn fake_host_answers_as_the_real_one() {
    let (first, count) =
        (random::from_environment("HOST_FIRST_SEED", 1), random::from_environment("HOST_SEEDS", 150));
    for seed in first..first + count {
        let orders = sequence(&mut Random::new(seed), LENGTH);
        match compare(&orders) {
            Err(reason) => return eprintln!("not run: {reason}"),
            Ok(None) => {}
            Ok(Some(difference)) => {
                let (shortest, difference) = shorten(orders, difference);
                let script: String = shortest.iter().map(|order| format!("    {order:?}\n")).collect();
                panic!("seed {seed}: {difference}\nafter\n{script}");
            }
        }
    }
}

/// Compares in a root of its own: links may lead anywhere, and must not lead to files of this machine.
fn compare(orders: &[Order]) -> Result<Option<String>, String> {
    let scratch = tempfile::tempdir().unwrap();
    let (world, orders) = (scratch.path().to_owned(), orders.to_owned());
    let (sender, receiver) = std::sync::mpsc::channel();
    in_namespace(move || {
        enter_world(&world);
        sender.send(differ(&orders).err()).unwrap();
    })?;
    Ok(receiver.recv().unwrap())
}

/// Makes an empty file system the root of the calling thread and of the threads it starts.
fn enter_world(world: &Path) {
    use nix::mount::{MsFlags, mount};
    mount(Some("tmpfs"), world, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).unwrap();
    std::fs::create_dir(world.join("proc")).unwrap();
    let proc = world.join("proc");
    mount(Some("proc"), &proc, Some("proc"), MsFlags::empty(), None::<&str>).unwrap();
    nix::unistd::chroot(world).unwrap();
    nix::unistd::chdir("/").unwrap();
}

/// Both hosts have their tree at the same path, so answers can be compared without translation.
fn differ(orders: &[Order]) -> Result<(), String> {
    let outside = PathBuf::from("/outside");
    let root = outside.join("x/y/root");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (real, fake) = (LinuxHost::new(), FakeHost::default());
        for host in [&real as &dyn Host, &fake] {
            host.make_dir_all(&outside, 0o755).await.unwrap();
            host.mount(&order::tmpfs(outside.clone())).await.unwrap();
            host.make_dir_all(&root, 0o755).await.unwrap();
            host.mount(&order::tmpfs(root.clone())).await.unwrap();
        }
        for (index, order) in orders.iter().enumerate() {
            let (there, here) = (order.run(&real, &root).await, order.run(&fake, &root).await);
            if there != here {
                return Err(format!("{index}: {order:?}\n  kernel: {there}\n  fake:   {here}"));
            }
            let (there, here) = (tree(&real).await, tree(&fake).await);
            if there != here {
                return Err(format!("{index}: {order:?}{}", difference(&there, &here)));
            }
        }
        Ok(())
    })
}

/// A line for each file, without the directories that only the real host needs.
async fn tree(host: &dyn Host) -> Vec<String> {
    let (mut lines, mut todo) = (Vec::new(), vec![PathBuf::from("/")]);
    while let Some(path) = todo.pop() {
        if path == Path::new("/proc") || path == Path::new("/dev") {
            continue;
        }
        let there = host.symlink_metadata(&path).await.unwrap();
        let content = match there.kind {
            FileKind::Directory => {
                let entries = host.read_dir(&path).await.unwrap();
                todo.extend(entries.iter().map(|entry| path.join(&entry.name)));
                String::new()
            }
            FileKind::Symlink => format!("-> {}", host.read_link(&path).await.unwrap().display()),
            _ => format!("{:?}", host.read_file(&path).await.unwrap()),
        };
        let (kind, mode, owner) = (there.kind, there.mode, (there.uid, there.gid));
        lines.push(format!("{} {kind:?} {mode:o} {owner:?} {} {content}", path.display(), there.nlink));
    }
    lines.sort();
    lines
}

fn difference(there: &[String], here: &[String]) -> String {
    let only = |these: &[String], those: &[String], mark: char| {
        let missing = these.iter().filter(|line| !those.contains(line));
        missing.map(|line| format!("\n  {mark} {line}")).collect::<String>()
    };
    format!(": the trees differ (- kernel, + fake){}{}", only(there, here, '-'), only(here, there, '+'))
}

/// Removes orders that the difference does not need.
fn shorten(mut orders: Vec<Order>, mut difference: String) -> (Vec<Order>, String) {
    let mut index = orders.len();
    while index > 0 {
        index -= 1;
        let mut shorter = orders.clone();
        shorter.remove(index);
        if let Ok(Some(other)) = compare(&shorter) {
            (orders, difference) = (shorter, other);
            index = index.min(orders.len());
        }
    }
    (orders, difference)
}
