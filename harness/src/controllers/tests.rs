//! The controllers on the API in memory, with a scripted controller service.

use std::collections::VecDeque;
use std::sync::Mutex;

use api::{Notification, Severity};
use tonic::Status;

use crate::api_server::ApiServer;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::symbols::Symbols;

mod attacher;
mod copies;
mod groups;
mod resizer;
mod volumes;

fn api_server() -> ApiServer {
    ApiServer::new(Journal::new(Symbols::new(Layout::standard()), None))
}

/// The calls of a scripted service. Each is noted, and fails with the next error that is left.
#[derive(Debug, Default)]
struct Calls {
    noted: Mutex<Vec<String>>,
    errors: Mutex<VecDeque<Status>>,
}

impl Calls {
    fn call(&self, call: String) -> Result<(), Status> {
        self.noted.lock().unwrap().push(call);
        self.errors.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    fn fail(&self, status: Status) {
        self.errors.lock().unwrap().push_back(status);
    }

    /// Those since the last look.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.noted.lock().unwrap())
    }
}

/// The warnings since the last look.
fn warnings(api: &ApiServer) -> Vec<String> {
    let mut warnings = vec![];
    for event in api.list::<Notification>() {
        if event.severity == Severity::Warning {
            warnings.push(format!("{}: {}", event.reason, event.message));
        }
        api.delete::<Notification>("default", &event.meta.name).unwrap();
    }
    warnings
}
