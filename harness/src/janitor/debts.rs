//! Asking a driver that goes on running to take back what a dead run asked it for. Connects to its sockets.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use csi_proto::v1::node_client::NodeClient;
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::Undone;
use crate::ledger::{Debts, Entry};
use crate::manifest::Secrets;
use crate::masks::Masks;
use crate::proxy::{self, within};
use crate::wait::Deadline;

/// The time limit of one call. A driver that is stuck must not keep the janitor from undoing the rest.
const CALL: Duration = Duration::from_secs(10);

/// The pause after a refusal.
const AGAIN: Duration = Duration::from_millis(50);

/// The driver's socket and the secrets for its calls.
struct Driver<'a> {
    node: Channel,
    controller: Channel,
    secrets: &'a Secrets,
}

/// Has the driver undo what it was asked for, in the order a node would.
pub(super) fn settle(entries: &[Entry], debts: &Debts, undone: &mut Undone) {
    let of_driver = entries.iter().find_map(|entry| match entry {
        Entry::Driver { socket, controller, secrets } => Some((socket, controller, secrets)),
        _ => None,
    });
    let Some((socket, controller, secrets)) = of_driver.filter(|_| !debts.is_empty()) else { return };
    if std::os::unix::net::UnixStream::connect(socket).is_err() {
        let volumes: Vec<&str> = debts.volumes.iter().map(String::as_str).collect();
        let line =
            format!("no driver answers at {}: it keeps the volumes {}", socket.display(), volumes.join(", "));
        undone.done.push(line);
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        // A channel belongs to the runtime it is made in.
        runtime.block_on(async {
            let driver = Driver::reach(socket, controller.as_deref(), secrets)?;
            driver.settle(debts, undone).await;
            // A driver may repeat in its errors what it was given.
            let masks = Masks::default();
            masks.learn(secrets);
            undone.left.iter_mut().for_each(|line| masks.hide_in(line));
            Ok(())
        })
    });
    if let Err(reason) = asked {
        undone.left.push(format!("the driver at {}: {reason}", socket.display()));
    }
}

impl<'a> Driver<'a> {
    fn reach(socket: &Path, controller: Option<&Path>, secrets: &'a Secrets) -> Result<Self, String> {
        let connect = |socket: &Path| proxy::connect(socket).map_err(|error| error.to_string());
        let node = connect(socket)?;
        let controller = controller.map(connect).transpose()?.unwrap_or_else(|| node.clone());
        Ok(Self { node, controller, secrets })
    }

    async fn settle(&self, debts: &Debts, undone: &mut Undone) {
        let node = || NodeClient::new(self.node.clone());
        let controller = || ControllerClient::new(self.controller.clone());
        for at in &debts.published {
            let request =
                v1::NodeUnpublishVolumeRequest { volume_id: at.volume.clone(), target_path: at.path.clone() };
            let call = || async { node().node_unpublish_volume(within(request.clone(), CALL)).await };
            note(undone, format!("unpublished {} at {}", at.volume, at.path), call).await;
        }
        for at in &debts.staged {
            let request = v1::NodeUnstageVolumeRequest {
                volume_id: at.volume.clone(),
                staging_target_path: at.path.clone(),
            };
            let call = || async { node().node_unstage_volume(within(request.clone(), CALL)).await };
            note(undone, format!("unstaged {} at {}", at.volume, at.path), call).await;
        }
        for on in &debts.attached {
            let request = v1::ControllerUnpublishVolumeRequest {
                volume_id: on.volume.clone(),
                node_id: on.node.clone(),
                secrets: secrets(self.secrets.controller_publish.as_ref()),
            };
            let call =
                || async { controller().controller_unpublish_volume(within(request.clone(), CALL)).await };
            note(undone, format!("detached {} from {}", on.volume, on.node), call).await;
        }
        let mut volumes: Vec<String> = debts.volumes.iter().cloned().collect();
        for (name, request) in &debts.unsure {
            volumes.extend(self.asked_again(name, request, undone).await);
        }
        for volume_id in volumes {
            let line = format!("deleted volume {volume_id}");
            let secrets = secrets(self.secrets.provision.as_ref());
            let request = v1::DeleteVolumeRequest { volume_id, secrets };
            let call = || async { controller().delete_volume(within(request.clone(), CALL)).await };
            note(undone, line, call).await;
        }
    }

    /// The volume that a request was or was not answered with: as any caller does whose answer was lost, it is
    /// asked for again by the same name.
    async fn asked_again(&self, name: &str, request: &[u8], undone: &mut Undone) -> Option<String> {
        let mut request = v1::CreateVolumeRequest::decode(request).ok()?;
        request.secrets = secrets(self.secrets.provision.as_ref());
        let deadline = Deadline::after(CALL);
        loop {
            let mut controller = ControllerClient::new(self.controller.clone());
            match controller.create_volume(within(request.clone(), CALL)).await {
                Ok(answer) => return answer.into_inner().volume.map(|volume| volume.volume_id),
                Err(status) if deadline.passed() => {
                    undone.left.push(format!(
                        "volume {name}, if there is one: the driver says {}",
                        status.message()
                    ));
                    return None;
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

/// Says what was undone, or why not. What the driver no longer knows is undone.
///
/// A driver may still be at work on the call that the dead run has made last, and is then asked again.
async fn note<T, F>(undone: &mut Undone, line: String, ask: impl Fn() -> F)
where
    F: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let deadline = Deadline::after(CALL);
    loop {
        match ask().await {
            Ok(_) => return undone.done.push(line),
            Err(status) if status.code() == Code::NotFound => return,
            Err(status) if deadline.passed() || status.code() == Code::Unimplemented => {
                return undone.left.push(format!("not {line}: the driver says {}", status.message()));
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

fn secrets<M: FromIterator<(String, String)> + Default>(file: Option<&PathBuf>) -> M {
    Secrets::revealed(file.map(PathBuf::as_path)).unwrap_or_default()
}
