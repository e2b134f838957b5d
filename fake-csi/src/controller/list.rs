//! ListVolumes, ControllerGetVolume and GetCapacity.

use csi_proto::v1;
use csi_proto::v1::{controller_get_volume_response, list_volumes_response};
use tonic::Status;

use crate::ability::Ability;
use crate::books::Volume;
use crate::driver::Driver;
use crate::sabotage::Sabotage;
use crate::size::signed;
use crate::{topology, validate};

impl Driver {
    pub(crate) fn list_volumes(
        &self,
        request: &v1::ListVolumesRequest,
    ) -> Result<v1::ListVolumesResponse, Status> {
        let any_token = self.breaks(Sabotage::ListAcceptsAnyToken);
        let mut page = match Page::of(request.max_entries, &request.starting_token) {
            Err(refusal) if any_token && refusal.code() == tonic::Code::Aborted => {
                Page { after: None, most: 0 }
            }
            page => page?,
        };
        self.trust(&page);
        let (mut volumes, next) = self.journal.read(|books| {
            let listed = books.volumes.values().filter(|volume| volume.created && !volume.ephemeral);
            (listed.cloned().collect::<Vec<_>>(), books.next)
        })?;
        volumes.sort_by_key(|volume| volume.number);
        if self.breaks(Sabotage::ListLosesAVolume) && page.after.is_some() {
            page.after = page.after.map(|after| after + 1);
        }
        if self.breaks(Sabotage::ListRepeatsToken) {
            page.after = None;
        }
        let (mut volumes, next_token) = page.cut(volumes, next, |volume| volume.number)?;
        if self.breaks(Sabotage::ListForgetsNewest) && request.max_entries == 0 {
            volumes.pop();
        }
        let listed = |volume: &Volume| {
            let mut described = self.describe(volume);
            if self.breaks(Sabotage::ListTellsHalf) {
                described.capacity_bytes /= 2;
            }
            if volume.source.is_some() && self.breaks(Sabotage::ListTellsSourceSize) {
                described.capacity_bytes = self.size_of_source(volume).unwrap_or(described.capacity_bytes);
            }
            if self.breaks(Sabotage::ListTellsAnotherPlace) {
                described.accessible_topology = vec![crate::topology::of("another")];
            }
            described
        };
        let entries = volumes.iter().map(|volume| list_volumes_response::Entry {
            volume: Some(listed(volume)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: self.published_nodes(volume),
                volume_condition: self
                    .condition(volume)
                    .filter(|_| !self.breaks(Sabotage::ListWithoutCondition)),
            }),
        });
        Ok(v1::ListVolumesResponse { entries: entries.collect(), next_token })
    }

    pub(crate) fn get_volume(
        &self,
        request: &v1::ControllerGetVolumeRequest,
    ) -> Result<v1::ControllerGetVolumeResponse, Status> {
        validate::required("volume_id", &request.volume_id)?;
        let volume = self.volume(&request.volume_id)?;
        let mut published_node_ids = self.published_nodes(&volume);
        if self.breaks(Sabotage::GetForgetsNodes) {
            published_node_ids.clear();
        }
        Ok(v1::ControllerGetVolumeResponse {
            volume: Some(self.describe(&volume)),
            status: Some(controller_get_volume_response::VolumeStatus {
                published_node_ids,
                volume_condition: self.condition(&volume),
            }),
        })
    }

    pub(crate) fn get_capacity(
        &self,
        request: &v1::GetCapacityRequest,
    ) -> Result<v1::GetCapacityResponse, Status> {
        validate::map("parameters", &request.parameters)?;
        let nothing = v1::GetCapacityResponse { available_capacity: 0, ..Default::default() };
        let backing = self.backing_named(&request.parameters)?.unwrap_or(self.options.backing);
        for capability in &request.volume_capabilities {
            let capability = validate::capability(Some(capability))?;
            if self.supports(backing, &capability).is_err() {
                return Ok(nothing);
            }
        }
        let zone =
            request.accessible_topology.as_ref().and_then(|place| place.segments.get(topology::ZONE_KEY));
        let zone = zone.filter(|_| !self.breaks(Sabotage::CapacityOfAnyPlace));
        let (used, is_known) = self.journal.read(|books| {
            let counted = books.volumes.values().filter(|_| !self.breaks(Sabotage::CapacityNeverShrinks));
            let used = counted.map(|volume| volume.capacity).sum::<u64>() + self.lost();
            (used, zone.is_none_or(|zone| books.nodes.values().any(|node| node.zone == *zone)))
        })?;
        if !is_known {
            return Ok(nothing);
        }
        let used = if self.breaks(Sabotage::CapacityIsZero) { u64::MAX } else { used };
        Ok(v1::GetCapacityResponse {
            available_capacity: signed(self.options.capacity.saturating_sub(used)),
            maximum_volume_size: Some(match self.breaks(Sabotage::CapacityMaximumTooSmall) {
                true => signed(self.options.capacity & u64::from(u32::MAX)),
                false => signed(self.options.capacity),
            }),
            minimum_volume_size: Some(match self.breaks(Sabotage::CapacityMinimumTooLarge) {
                true => signed(self.options.capacity + 1),
                false => signed(super::create::SMALLEST),
            }),
        })
    }

    /// The bug: a token is taken for the number of an entry without a check.
    fn trust(&self, page: &Page) {
        if self.breaks(Sabotage::ListTrustsTokens) && page.after.is_some_and(|after| after > 1000) {
            std::process::abort();
        }
    }

    fn published_nodes(&self, volume: &Volume) -> Vec<String> {
        if self.can(Ability::PublishedNodes) { volume.attached.keys().cloned().collect() } else { Vec::new() }
    }

    /// A condition, and its words if the volume is well and if it is not.
    pub(crate) fn condition_of(&self, is_well: bool, well: &str, ill: &str) -> v1::VolumeCondition {
        let (words, silent) = match is_well {
            true => (well, Sabotage::WellWithoutWords),
            false => (ill, Sabotage::ConditionWithoutWords),
        };
        let message = if self.breaks(silent) { String::new() } else { words.to_owned() };
        v1::VolumeCondition { abnormal: !is_well, message }
    }

    fn size_of_source(&self, volume: &Volume) -> Option<i64> {
        let source = volume.source.as_ref()?;
        let origin = self.journal.read(|books| super::source::Origin::find(books, source).ok()).ok()?;
        origin.map(|origin| signed(origin.size))
    }

    fn condition(&self, volume: &Volume) -> Option<v1::VolumeCondition> {
        if volume.number.is_multiple_of(2) && self.breaks(Sabotage::ConditionMissingOfSecond) {
            return None;
        }
        let is_there =
            crate::driver::exists(&self.contents_of(volume)) && !self.breaks(Sabotage::NewVolumeIsAbnormal);
        self.can(Ability::Condition).then(|| self.condition_of(is_there, "present", "its contents are gone"))
    }
}

/// A page of a list. Its token is the number of its last entry, and stays valid when entries are deleted or added.
#[derive(Debug)]
pub(super) struct Page {
    after: Option<u64>,
    most: usize,
}

impl Page {
    /// The page of a request.
    pub(super) fn of(max_entries: i32, starting_token: &str) -> Result<Self, Status> {
        let most =
            usize::try_from(max_entries).map_err(|_| Status::invalid_argument("max_entries is negative"))?;
        let after = match starting_token {
            "" => None,
            token => Some(token.parse().map_err(|_| Status::aborted("starting_token is not one of ours"))?),
        };
        Ok(Self { after, most })
    }

    /// Cuts the page from a list sorted by number, and returns it with the token of the next page.
    pub(super) fn cut<T>(
        &self,
        list: Vec<T>,
        next_number: u64,
        number: impl Fn(&T) -> u64,
    ) -> Result<(Vec<T>, String), Status> {
        if self.after.is_some_and(|after| after >= next_number) {
            return Err(Status::aborted("starting_token is not one of ours"));
        }
        let rest = list.into_iter().filter(|item| self.after.is_none_or(|after| number(item) > after));
        let mut page: Vec<T> = rest.collect();
        if self.most == 0 || page.len() <= self.most {
            return Ok((page, String::new()));
        }
        page.truncate(self.most);
        let token = page.last().map(|last| number(last).to_string()).unwrap_or_default();
        Ok((page, token))
    }
}
