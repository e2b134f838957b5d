//! The termination message of a container: the file that it may write, and its end, which is read afterwards.
//!
//! Touches `pods/<uid>/containers/<container>`.

use std::path::{Path, PathBuf};

use api::names::ContainerName;
use host::{Host, HostError};
use plugin_api::paths::Paths;

use super::Request;
use super::mounts::{Mount, Propagation, Source, absolute};

/// The most bytes that are read.
const LONGEST: u64 = 4096;

/// The mount of the file; `None` if the container has none, or if the file could not be made: the container starts
/// all the same.
pub(super) async fn mount(host: &dyn Host, paths: &Paths, request: &Request<'_>) -> Option<Mount> {
    let wanted = request.container.termination_message_path.as_str();
    if wanted.is_empty() {
        return None;
    }
    match file(host, paths, request).await {
        Ok(path) => Some(Mount {
            name: "termination-log".to_owned(),
            source: Source::Path(path),
            container_path: absolute(wanted),
            read_only: false,
            recursive_read_only: false,
            propagation: Propagation::Private,
            selinux_relabel: true,
        }),
        Err(error) => {
            let error = api::error::chain(&error);
            tracing::warn!(container = request.container.name, error, "no last words will be heard");
            None
        }
    }
}

/// The path of the file for this start: the message of the start before may not have been read yet.
async fn file(host: &dyn Host, paths: &Paths, request: &Request<'_>) -> Result<PathBuf, HostError> {
    let dir = paths.pod_container(&request.pod.uid(), &ContainerName::new(&request.container.name));
    host.make_dir_all(&dir, 0o750).await?;
    let path = dir.join(format!("{:08x}", request.attempt));
    host.write_file(&path, b"", 0o666).await?;
    host.chmod(&path, 0o666).await?;
    Ok(path)
}

/// The end of the message; empty if there is no file.
pub async fn message(host: &dyn Host, path: &Path) -> Result<Vec<u8>, HostError> {
    match host.read_end(path, LONGEST).await {
        Ok(words) => Ok(words),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
