//! The attacher beside the driver's controller: does what the objects of attachments ask for, and says so in
//! them. The API never fails it; what the driver answers does.

use std::time::Duration;

use api::storage::AttachmentError;
use api::{Attachment, Key, Kind, PersistentSource, Volume};
use tokio::task::AbortHandle;
use tonic::Status;

use crate::api::SimulatedApi;
use crate::driver::SimulatedDriver;

/// How long it waits for an answer.
const LIMIT: Duration = Duration::from_secs(15);
/// When it tries again what failed.
const AGAIN: Duration = Duration::from_secs(1);
/// What keeps an object until its volume is detached.
const FINALIZER: &str = "external-attacher/sim-csi-volproof-dev";

/// Works until it is told to stop.
pub(crate) fn start(api: SimulatedApi, driver: SimulatedDriver) -> AbortHandle {
    let attacher = Attacher { api, driver };
    tokio::spawn(attacher.run()).abort_handle()
}

struct Attacher {
    api: SimulatedApi,
    driver: SimulatedDriver,
}

impl Attacher {
    async fn run(self) {
        let mut changes = self.api.follow(Kind::Attachment);
        loop {
            while changes.try_recv().is_ok() {}
            let mut settled = true;
            for listed in self.api.all::<Attachment>() {
                // The one before may have taken its time.
                let Some(attachment) = self.api.find::<Attachment>("", &listed.meta.name) else { continue };
                settled &= self.serve(&attachment).await;
            }
            // What it writes itself is no reason to try again at once.
            match settled {
                true => drop(changes.recv().await),
                false => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Does what an attachment asks for. Whether there is nothing left to do.
    async fn serve(&self, attachment: &Attachment) -> bool {
        let Some(handle) = self.handle(attachment) else { return true };
        if attachment.meta.is_deleting() {
            return self.detach(attachment, &handle).await;
        }
        if attachment.attached {
            return true;
        }
        if attachment.meta.finalizers.is_empty() {
            self.change(attachment, |object| object.meta.finalizers.push(FINALIZER.to_owned()));
        }
        let answer = limited(self.driver.attach(&handle, &attachment.node)).await;
        let done = answer.is_ok();
        self.change(attachment, |object| match answer {
            Ok(metadata) => {
                (object.attached, object.metadata, object.attach_error) = (true, metadata, None);
            }
            Err(status) => object.attach_error = Some(told(&status)),
        });
        done
    }

    async fn detach(&self, attachment: &Attachment, handle: &str) -> bool {
        match limited(self.driver.detach(handle, &attachment.node)).await {
            Ok(()) => {
                self.api.remove(&Key::cluster(Kind::Attachment, &attachment.meta.name), "controller");
                true
            }
            Err(status) => {
                self.change(attachment, |object| object.detach_error = Some(told(&status)));
                false
            }
        }
    }

    fn change(&self, attachment: &Attachment, change: impl FnOnce(&mut Attachment)) {
        self.api.change("", &attachment.meta.name, change);
    }

    fn handle(&self, attachment: &Attachment) -> Option<String> {
        match &self.api.find::<Volume>("", &attachment.volume)?.source {
            PersistentSource::Csi(csi) => Some(csi.handle.to_string()),
            _ => None,
        }
    }
}

async fn limited<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded("context deadline exceeded");
    tokio::time::timeout(LIMIT, call).await.map_err(late)?
}

fn told(status: &Status) -> AttachmentError {
    AttachmentError { message: status.message().to_owned(), code: Some(i32::from(status.code())) }
}
