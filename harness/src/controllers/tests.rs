//! The controllers on the API in memory, with a scripted controller service.

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
