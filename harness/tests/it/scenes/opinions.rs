//! What a container sees, once of our own and once of runc's, from one configuration.

use std::error::Error as _;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use harness::Layout;
use harness::container::{self, Container, ContainerError, DeviceGroup, Spec};
use harness::guard::Guard;
use harness::node::Wanted;

use super::bed::Bed;

/// The configuration of a pod's container, as the node writes it.
pub(crate) async fn configuration(bed: &Bed, pod: &str) -> Result<Spec> {
    let rootfs = Layout::standard().state().join("rootfs");
    std::fs::create_dir_all(&rootfs)?;
    let wanted = Wanted { pod: pod.to_owned(), container: "c".to_owned(), attempt: 0, rootfs };
    Ok(bed.node.configure(wanted).await?)
}

/// What a container of the harness sees.
pub(crate) async fn ours(bed: &Bed, spec: &Spec) -> Result<String> {
    let own = std::fs::metadata("/proc/self/ns/pid").map(|own| std::os::unix::fs::MetadataExt::ino(&own))?;
    let group = container::device_group(&format!("volproof-scene-{own}"))?;
    bed.will_make(vec![group.clone()])?;
    let group = DeviceGroup::create(&group, spec)?;
    let mut container = Container::start(spec, &bed.log("container.log"), Some(group)).await?;
    let seen = seen(bed, &mut container).await?;
    container.close()?;
    Ok(seen)
}

/// What a container sees that runc started.
pub(crate) async fn of_runc(bed: &Bed, spec: &Spec) -> Result<String> {
    let directory = Layout::standard().state().join("runc");
    std::fs::create_dir_all(&directory)?;
    bed.will_make(container::runc_groups(&directory))?;
    let log = bed.log("runc.log");
    let mut container = match Container::start_with_runc(spec, &log, &directory).await {
        Ok(container) => container,
        Err(error) => {
            anyhow::bail!(
                "{error}: {:?}\n{}",
                error.source(),
                std::fs::read_to_string(log).unwrap_or_default()
            )
        }
    };
    let seen = seen(bed, &mut container).await?;
    container.close()?;
    Ok(seen)
}

async fn seen(bed: &Bed, container: &mut Container) -> Result<String> {
    let identity = container.identity().await?;
    // A runtime looks the home directory up in the image, and there is none here.
    let lines = identity.lines().filter(|line| !line.starts_with("env    HOME="));
    let mut seen: String = lines.map(|line| format!("{line}\n")).collect();
    for path in ["/data/other", "/dev/disk", "/fast/new", "/proc/sys/kernel/domainname"] {
        writeln!(seen, "{path}: {}", word(container.write(Path::new(path), "x").await)?)?;
    }
    writeln!(seen, "mount: {}", word(container.mount(Path::new("/fast/disk")).await)?)?;
    // 7:255 is a device that no process here uses.
    writeln!(seen, "node: {}", word(container.open_node(7, 255).await)?)?;
    // Last, so that both see what the first of them has left.
    seen += &container.look().await?.to_text(bed.journal.symbols(), &[]);
    Ok(seen)
}

/// The kernel's error.
fn word(done: Result<(), ContainerError>) -> Result<String> {
    match done {
        Ok(()) => Ok("done".to_owned()),
        Err(ContainerError::Refused { source, .. }) => {
            Ok(format!("{:?}", nix::errno::Errno::from_raw(source.raw_os_error().unwrap_or_default())))
        }
        Err(error) => Err(error.into()),
    }
}
