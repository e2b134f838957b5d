//! The driver's lists of its volumes, its capacity, and the parameters that can be modified.

use std::panic::Location;

use serde_json::{Value, json};

use super::{Answer, Cx, Volume};
use crate::failure::Result;
use crate::pages::Pages;

impl Cx {
    /// Whether the plugin has a capability of GetPluginCapabilities, by its name.
    pub fn plugin_can(&self, capability: &str) -> bool {
        self.shared.bed.capabilities().plugin.contains(capability)
    }

    pub fn node_topology(&self) -> Value {
        json!({ "segments": self.shared.bed.capabilities().topology })
    }

    /// The most volumes of the driver on the node; 0 for any number.
    pub fn most_volumes(&self) -> usize {
        usize::try_from(self.shared.bed.capabilities().max_volumes).unwrap_or(0)
    }

    /// Asks for the capacity that is left for volumes like the last one.
    #[track_caller]
    pub fn capacity(&self) -> Result<impl Future<Output = Result<Answer>> + use<>> {
        let created = self.last_request("CreateVolume")?;
        let mut request = json!({
            "volumeCapabilities": created["volumeCapabilities"],
            "parameters": created["parameters"],
        });
        // Without a topology the answer is about all nodes.
        if let Some(place) = created.pointer("/accessibilityRequirements/preferred/0") {
            request["accessibleTopology"] = place.clone();
        }
        Ok(self.call("GetCapacity", request))
    }

    /// The last CreateVolume request with another name.
    #[track_caller]
    pub fn create_request(&self, name: &str) -> Result<Value> {
        let mut request = self.last_request("CreateVolume")?;
        request["name"] = json!(format!("{}-{name}", request["name"].as_str().unwrap_or_default()));
        Ok(request)
    }

    /// Repeats the last CreateVolume with another name and this required size.
    #[track_caller]
    pub fn creates_another(&self, bytes: u64) -> Result<impl Future<Output = Result<Answer>> + use<>> {
        let mut request = self.create_request("more")?;
        request["capacityRange"] = json!({ "requiredBytes": bytes.to_string() });
        Ok(self.call("CreateVolume", request))
    }

    /// The ControllerModifyVolume request for the parameters that the manifest names; none if it names none.
    pub fn modify_request(&self, volume: &Volume) -> Option<Value> {
        let parameters = &self.shared.bed.manifest().volume.mutable_parameters;
        let request = json!({ "volumeId": self.handle(volume), "mutableParameters": parameters });
        (!parameters.is_empty()).then_some(request)
    }

    /// The volume as ControllerGetVolume and ListVolumes describe it.
    #[track_caller]
    pub fn descriptions_of(&self, volume: &Volume) -> impl Future<Output = Result<Vec<Value>>> {
        let entries = self.entries_of(volume);
        async move { Ok(entries.await?.into_iter().map(|(_, entry)| entry["volume"].clone()).collect()) }
    }

    /// The entries of ControllerGetVolume and ListVolumes for a volume, each with its call.
    #[track_caller]
    pub fn entries_of(&self, volume: &Volume) -> impl Future<Output = Result<Vec<(&'static str, Value)>>> {
        self.entries_of_id(self.handle(volume))
    }

    /// The entries for the id of a volume that a call of the case has created.
    #[track_caller]
    pub fn entries_of_id(&self, id: String) -> impl Future<Output = Result<Vec<(&'static str, Value)>>> {
        let caller = Location::caller();
        async move {
            self.shared.begin("asking the controller about a volume", caller);
            let mut found = Vec::new();
            if self.controller_can("GET_VOLUME") {
                let answer = self.call("ControllerGetVolume", json!({ "volumeId": id })).await?;
                answer.succeeds()?;
                found.push(("ControllerGetVolume", answer.part("")));
            }
            let mut pages = Pages::default();
            while self.controller_can("LIST_VOLUMES") {
                let page = self.call("ListVolumes", json!({ "startingToken": pages.token() })).await?;
                page.succeeds()?;
                let is_of_volume = |entry: &&Value| entry["volume"]["volumeId"] == json!(id);
                let entries = page.list("/entries").iter().filter(is_of_volume);
                found.extend(entries.map(|entry| ("ListVolumes", entry.clone())));
                if pages.follow(page.text("/nextToken")) != Ok(true) {
                    break;
                }
            }
            Ok(found)
        }
    }
}
