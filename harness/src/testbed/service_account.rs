//! The service account of a Kubernetes client in a pod: its files, at the path that clients have built in, and the
//! variables with the server's address. Written only into a sandbox's own `/run`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::TestbedError;
use crate::Layout;
use crate::api_server::HttpApi;
use crate::{observe, sandbox, standing};

/// Writes the files, and returns the variables: none where the files would be the machine's.
pub(super) fn install(http: &HttpApi) -> Result<BTreeMap<String, String>, TestbedError> {
    if !standing::in_guest() && !run_is_our_own() {
        return Ok(BTreeMap::new());
    }
    let directory = Path::new(Layout::SERVICE_ACCOUNT);
    let failed = |source| TestbedError::Prepare { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    for (name, text) in http.service_account() {
        fs::write(directory.join(name), text).map_err(failed)?;
    }
    let variables = http.service_variables().into_iter();
    Ok(variables.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Whether `/run`, which `/var/run` is a link to, is gone with the sandbox.
fn run_is_our_own() -> bool {
    let leads_there = fs::canonicalize("/var/run").is_ok_and(|path| path == Path::new("/run"));
    let mounts = observe::mounts_of("thread-self").unwrap_or_default();
    let of_run = mounts.iter().rfind(|mount| mount.target == Path::new("/run"));
    leads_there && of_run.is_some_and(|mount| mount.source == sandbox::SOURCE)
}
