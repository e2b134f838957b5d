//! CreateVolume: one volume per name. The volume is recorded before its image is made.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csi_proto::v1;
use tonic::Status;

use super::source::Origin;
use crate::ability::Ability;
use crate::books::{Access, Backing, Books, Capability, Source, Volume};
use crate::driver::Driver;
use crate::journal::Entry;
use crate::kernel::loop_device::{Lifetime, LoopDevice};
use crate::kernel::{KernelError, copy, filesystem};
use crate::sabotage::Sabotage;
use crate::size::{range, signed};
use crate::{topology, validate};

/// Bytes of a volume without a capacity range.
const DEFAULT_CAPACITY: u64 = 64 << 20;
pub(crate) const SMALLEST: u64 = 1 << 20;
/// The longest name that the sabotages of long names leave alone.
const LONG: usize = 64;
/// The parameter for a volume's backing.
const BACKING_KEY: &str = "backing";

/// A checked request for a volume.
struct Wanted<'a> {
    request: &'a v1::CreateVolumeRequest,
    capabilities: Vec<Capability>,
    source: Option<Source>,
    /// The smallest and the largest size in bytes.
    bounds: (u64, Option<u64>),
}

impl Driver {
    pub(crate) fn create_volume(
        &self,
        request: &v1::CreateVolumeRequest,
    ) -> Result<v1::CreateVolumeResponse, Status> {
        validate::name("name", &request.name)?;
        self.stumble_over(&request.name);
        let is_long = request.name.len() > LONG;
        if is_long && self.breaks(Sabotage::CreateRefusesLongNames) {
            return Err(Status::invalid_argument("name is too long"));
        }
        let is_dropped = is_long && self.breaks(Sabotage::CreateDropsLongNames);
        let wanted = self.checked(request)?;

        let races = self.breaks(Sabotage::CreateRacesItself);
        let claim = || self.in_flight.claim(&[&format!("volume named {}", request.name)]);
        let _claim = (!races).then(claim).transpose()?;
        let fails_beside = self.breaks(Sabotage::CreateFailsBesideAnother);
        let alone = || self.in_flight.claim(&["the only volume that is being created"]);
        let alone = fails_beside.then(alone).transpose();
        let alone = alone.map_err(|_| Status::internal("the list of volumes cannot be read"))?;
        if alone.is_some() {
            // The others come meanwhile, however quick the disk is.
            std::thread::sleep(Duration::from_millis(50));
        }
        let is_new = races && self.finds_no_volume(&request.name)?;
        // Claimed too: the source must not change or be deleted meanwhile.
        let source_claim = wanted.source.as_ref().map(|source| self.in_flight.claim(&[source.id()]));
        let _source_claim = source_claim.transpose()?;
        let ignores_existing = is_new || self.breaks(Sabotage::CreateForgetsIdempotence);
        let volume = self.journal.transact(|books| {
            let existing = if ignores_existing { None } else { self.existing(books, &wanted)? };
            if let Some(volume) = existing {
                return Ok((Vec::new(), volume));
            }
            let volume = self.design(books, &wanted)?;
            self.must_fit(books, volume.capacity)?;
            if is_dropped {
                return Ok((Vec::new(), volume));
            }
            let entries = vec![Entry::Next(books.next + 1), Entry::Volume(Box::new(volume.clone()))];
            Ok::<_, Status>((entries, volume))
        })?;
        if volume.created {
            self.spoil(&volume)?;
        }
        let is_old = volume.created;
        let volume = if volume.created || is_dropped { volume } else { self.make_alone(&volume)? };
        let mut response = self.answer(&volume, &wanted);
        if let Some(answered) = response.volume.as_mut()
            && is_old
            && self.breaks(Sabotage::CreateAgainHidesSource)
        {
            answered.content_source = None;
        }
        Ok(response)
    }

    /// Checks a request, except against the books.
    fn checked<'a>(&self, request: &'a v1::CreateVolumeRequest) -> Result<Wanted<'a>, Status> {
        let capabilities = self.capabilities_of(request)?;
        validate::map("parameters", &request.parameters)?;
        validate::map("mutable_parameters", &request.mutable_parameters)?;
        validate::map("secrets", &request.secrets)?;
        let bounds = range(request.capacity_range.as_ref()).map_err(|refused| {
            match self.breaks(Sabotage::SecretsInRangeErrors) {
                true => Status::out_of_range(format!("{} with {:?}", refused.message(), request.secrets)),
                false => refused,
            }
        })?;
        if !self.breaks(Sabotage::CreateDropsParameters) {
            super::expand::check_mutable(&request.mutable_parameters)?;
        }
        let source = self.source_of(request.volume_content_source.as_ref())?;
        let is_gone = |id: &str| self.has_seen(&format!("deleted: {id}"));
        let source =
            source.filter(|source| !(self.breaks(Sabotage::CloneOfDeletedIsEmpty) && is_gone(source.id())));
        if let Some(source) = &source
            && self.breaks(Sabotage::RefusedRestoreSpoilsSnapshot)
            && self.has_seen(&format!("refused copy of {}", source.id()))
        {
            return Err(Status::unknown("the source is not ready to use"));
        }
        Ok(Wanted { request, capabilities, source, bounds })
    }

    /// The volume of the requested name. Fails if it differs from the request.
    fn existing(&self, books: &Books, wanted: &Wanted<'_>) -> Result<Option<Volume>, Status> {
        let named = |volume: &&Volume| self.has_name(volume, &wanted.request.name) && !volume.ephemeral;
        let Some(volume) = books.volumes.values().find(named) else { return Ok(None) };
        match is_compatible(volume, wanted) {
            Err(differs) if !self.overlooks(differs) => Err(already_exists(differs)),
            Ok(()) if volume.source.is_some() && self.breaks(Sabotage::CreateForgetsSource) => {
                Err(already_exists("content source"))
            }
            _ => Ok(Some(volume.clone())),
        }
    }

    fn answer(&self, volume: &Volume, wanted: &Wanted<'_>) -> v1::CreateVolumeResponse {
        let (request, bounds) = (wanted.request, wanted.bounds);
        let mut answered = self.describe(volume);
        if self.options.padding > 0 {
            answered.volume_context.insert("padding".to_owned(), "p".repeat(self.options.padding));
        }
        if self.breaks(Sabotage::CreateRemembersTooLarge) {
            answered.capacity_bytes = answered.capacity_bytes.max(signed(bounds.0));
        }
        if self.breaks(Sabotage::CreateAnswersNewContext) {
            answered.volume_context.extend(request.parameters.clone());
        }
        if let Some(limit) = bounds.1.filter(|_| self.breaks(Sabotage::CreateAnswersLimit)) {
            answered.capacity_bytes = signed(limit);
        }
        if answered.content_source.is_some() && self.breaks(Sabotage::CopyNamesAnotherSource) {
            let r#type =
                Some(v1::volume_content_source::Type::Volume(v1::volume_content_source::VolumeSource {
                    volume_id: "vol-another".to_owned(),
                }));
            answered.content_source = Some(v1::VolumeContentSource { r#type });
        }
        if bounds.0 > 0 && self.breaks(Sabotage::CreateAgainAnswersAskedSize) {
            answered.capacity_bytes = signed(bounds.0);
        }
        if self.breaks(Sabotage::CreateAnswersOddSize) {
            answered.capacity_bytes = signed(volume.capacity.next_multiple_of(1 << 20));
        }
        if self.breaks(Sabotage::SecretInContext) {
            answered.volume_context.extend(request.secrets.clone());
        }
        v1::CreateVolumeResponse { volume: Some(answered) }
    }

    fn has_name(&self, volume: &Volume, name: &str) -> bool {
        const COMPARED: usize = 40;
        const ALMOST_ALL: usize = 127;
        let cut = |name: &str, to: usize| name.bytes().take(to).collect::<Vec<_>>();
        let folded = |name: &str| name.replace(['.', '_'], "-");
        match self.options.sabotage {
            Some(Sabotage::CreateCutsNames) => cut(&volume.name, COMPARED) == cut(name, COMPARED),
            Some(Sabotage::CreateCutsLongestNames) => cut(&volume.name, ALMOST_ALL) == cut(name, ALMOST_ALL),
            Some(Sabotage::CreateFindsLongerNames) => volume.name.starts_with(name),
            Some(Sabotage::CreateFoldsSigns) => folded(&volume.name) == folded(name),
            _ => volume.name == name,
        }
    }

    /// The bug: the look-up and the creation are not one step.
    fn finds_no_volume(&self, name: &str) -> Result<bool, Status> {
        let is_new =
            self.journal.read(|books| !books.volumes.values().any(|volume| self.has_name(volume, name)))?;
        std::thread::sleep(std::time::Duration::from_millis(30));
        Ok(is_new)
    }

    /// Whether a sabotage ignores this difference between a request and the volume of its name.
    fn overlooks(&self, difference: &str) -> bool {
        let overlooked = match difference {
            "capabilities" => Sabotage::CreateIgnoresUse,
            "content source" => Sabotage::CreateIgnoresSource,
            "limit" => Sabotage::CreateIgnoresTakenLimit,
            "place" => Sabotage::CreateIgnoresPlace,
            "parameters" => Sabotage::CreateAnswersNewContext,
            _ => Sabotage::CreateIgnoresConflict,
        };
        self.breaks(overlooked) || self.breaks(Sabotage::CreateIgnoresConflict)
    }

    fn capabilities_of(&self, request: &v1::CreateVolumeRequest) -> Result<Vec<Capability>, Status> {
        if self.breaks(Sabotage::CreateNeedsSize) && request.capacity_range.is_none() {
            return Err(Status::invalid_argument("capacity_range is missing"));
        }
        let mut capabilities = request.volume_capabilities.clone();
        if self.breaks(Sabotage::CapabilityWithoutMode) {
            use v1::volume_capability::{AccessMode, access_mode::Mode};
            let mode = AccessMode { mode: Mode::SingleNodeWriter.into() };
            capabilities.iter_mut().for_each(|one| _ = one.access_mode.get_or_insert(mode));
        }
        validate::capabilities(&capabilities)
    }

    /// The volume as a message of CSI.
    pub(crate) fn describe(&self, volume: &Volume) -> v1::Volume {
        let accessible_topology =
            if self.can(Ability::Topology) { vec![topology::of(&volume.zone)] } else { Vec::new() };
        v1::Volume {
            capacity_bytes: match self.can(Ability::ToldCapacity) {
                true if self.breaks(Sabotage::CreateReportsWrongSize) => signed(volume.capacity * 2),
                true => signed(volume.capacity),
                false => 0,
            },
            volume_id: volume.id.clone(),
            volume_context: volume
                .mutable_parameters
                .clone()
                .into_iter()
                .chain([(BACKING_KEY.to_owned(), backing_name(volume.backing))])
                .chain(
                    self.breaks(Sabotage::ContextTooLarge)
                        .then(|| ("padding".to_owned(), "p".repeat(5 << 10))),
                )
                .collect(),
            content_source: match self.breaks(Sabotage::CopyHidesItsSource) {
                true => None,
                false => volume.source.as_ref().map(Source::describe),
            },
            accessible_topology,
        }
    }

    /// The bug: a volume that is made while another one is being made gets nothing.
    fn make_alone(&self, volume: &Volume) -> Result<Volume, Status> {
        if !self.breaks(Sabotage::CreateAtOnceLosesOne) {
            return self.make_contents(volume);
        }
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        let made = self.make_contents(volume);
        std::thread::sleep(std::time::Duration::from_millis(30));
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        if others > 0 && made.is_ok() {
            self.remove_contents(volume)?;
        }
        made
    }

    /// Makes the file or directory of a recorded volume, and records it as created.
    pub(crate) fn make_contents(&self, volume: &Volume) -> Result<Volume, Status> {
        let path = self.contents_of(volume);
        let failed = |source| KernelError::path("create", &path, source);
        match volume.backing {
            Backing::Loop => {
                // Truncates the image of an earlier attempt.
                let exceeds = volume.is_raw() && self.breaks(Sabotage::DeviceExceedsLimit);
                let bytes = volume.capacity + if exceeds { 1 << 20 } else { 0 };
                File::create(&path).and_then(|file| file.set_len(bytes)).map_err(failed)?;
                let old = self.old_blocks(&volume.name);
                if volume.is_raw() && self.breaks(Sabotage::DeviceFindsOldBlocks) && old.exists() {
                    copy::image(&old, &path)?;
                }
            }
            Backing::Tmpfs => self.mount_tmpfs(volume)?,
            Backing::Directory | Backing::Shared | Backing::Fuse => {
                fs::create_dir_all(&path).map_err(failed)?;
                let open_to_all = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
                fs::set_permissions(&path, open_to_all).map_err(failed)?;
            }
        }
        if self.breaks(Sabotage::CreateRunsNames) && volume.name.contains('$') {
            // The bug: the name is part of a line for a shell.
            drop(Command::new("sh").arg("-c").arg(format!("true {}", volume.name)).status());
        }
        if self.breaks(Sabotage::CreateTrustsNames) && volume.name.contains('/') {
            // The bug: the caller's name becomes part of a path.
            let note = self.options.state.join("volumes").join(format!("{}.json", volume.name));
            drop(fs::write(note, &volume.id));
        }
        if let Some(source) = &volume.source
            && !self.breaks(Sabotage::CloneIsEmpty)
        {
            self.fill_from(volume, source)?;
            if let Source::Volume(id) = source {
                self.forget_targets(Sabotage::CloneForgetsTargets, id)?;
            }
            if let Source::Volume(id) = source
                && self.breaks(Sabotage::CloneEmptiesSource)
            {
                self.empty_contents(&self.volume(id)?)?;
            }
        }
        self.update_volume(&volume.id, |volume| volume.created = true)
    }

    /// The bugs: what is done for a new volume is done for one that is there.
    fn spoil(&self, volume: &Volume) -> Result<(), Status> {
        if self.breaks(Sabotage::CreateAgainOpensRoot) {
            // What is on the device is changed when it is mounted the next time.
            self.remember(&format!("created again: {}", volume.id));
        }
        let Some(source) = &volume.source else {
            if self.breaks(Sabotage::CreateAgainEmptiesVolume) {
                self.empty_contents(volume)?;
            }
            return Ok(());
        };
        if self.breaks(Sabotage::CreateFillsCopyAgain) {
            self.fill_from(volume, source)?;
        }
        if self.breaks(Sabotage::CreateAgainEmptiesCopy) {
            self.journal.read(|books| Origin::find(books, source))?.map(drop).or_else(|unknown| {
                self.empty_contents(volume)?;
                Err(unknown)
            })?;
        }
        Ok(())
    }

    /// The bug: a volume loses all that is in it.
    pub(crate) fn empty_contents(&self, volume: &Volume) -> Result<(), Status> {
        let path = self.contents_of(volume);
        let failed = |source| Status::from(KernelError::path("empty", &path, source));
        if volume.backing == Backing::Loop {
            let image = File::options().write(true).open(&path).map_err(failed)?;
            return image.set_len(0).and_then(|()| image.set_len(volume.capacity)).map_err(failed);
        }
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?.path();
            match entry.is_dir() && !entry.is_symlink() {
                true => fs::remove_dir_all(&entry).map_err(failed)?,
                false => fs::remove_file(&entry).map_err(failed)?,
            }
        }
        Ok(())
    }

    /// The bug: a copy that was refused is there when it is asked for again.
    fn has_failed_before(&self, name: &str) -> bool {
        self.breaks(Sabotage::CreateRemembersFailedCopy) && !self.is_first(&format!("copy named {name}"))
    }

    /// The bug: a volume that was refused for its size is there when it is asked for again.
    fn remembered_size(&self, name: &str, refused: Status) -> Result<u64, Status> {
        let is_first = || self.is_first(&format!("too large: {name}"));
        if !self.breaks(Sabotage::CreateRemembersTooLarge) || is_first() {
            return Err(refused);
        }
        Ok(SMALLEST)
    }

    fn origin_of(&self, books: &Books, wanted: &Wanted<'_>) -> Result<Option<Origin>, Status> {
        match wanted.source.as_ref().map(|source| Origin::find(books, source)).transpose() {
            Err(_) if self.breaks(Sabotage::CreateFromUnknownSource) => Ok(None),
            Err(_) if self.has_failed_before(&wanted.request.name) => Ok(None),
            Err(unknown) if self.breaks(Sabotage::CapacityKeepsRefused) => {
                self.lose(Sabotage::CapacityKeepsRefused, DEFAULT_CAPACITY);
                Err(unknown)
            }
            Err(unknown) if self.breaks(Sabotage::FailedCopyStays) => {
                drop(fs::write(self.options.state.join("volumes").join(&wanted.request.name), ""));
                Err(unknown)
            }
            Err(unknown) if self.breaks(Sabotage::FailedCopyHoldsDevice) => {
                let image = self.options.state.join("volumes").join(format!("copy-{}", books.next));
                File::create(&image)
                    .and_then(|file| file.set_len(SMALLEST))
                    .map_err(|source| KernelError::path("create", &image, source))?;
                drop(LoopDevice::attach(&image, false, Lifetime::UntilDetached)?);
                copy::remove(&image)?;
                Err(unknown)
            }
            origin => origin,
        }
    }

    /// A new volume that meets a request.
    fn design(&self, books: &Books, wanted: &Wanted<'_>) -> Result<Volume, Status> {
        let (request, capabilities) = (wanted.request, &wanted.capabilities);
        let origin = self.origin_of(books, wanted)?;
        let source = wanted.source.clone().filter(|_| origin.is_some());
        let backing = match (&origin, self.backing_named(&request.parameters)?) {
            (None, named) => named.unwrap_or_else(|| self.backing_for(capabilities)),
            (Some(origin), None) => origin.backing,
            (Some(origin), Some(named)) => origin.must_suit(named)?,
        };
        if !self.breaks(Sabotage::CreateAcceptsAnything) {
            let refused = |capability| self.supports(backing, capability).map_err(Status::invalid_argument);
            capabilities.iter().try_for_each(refused)?;
        }
        Ok(Volume {
            number: books.next,
            id: match self.breaks(Sabotage::IdIsACount) {
                true => format!("vol-{:08x}", books.volumes.len()),
                false => format!("vol-{:08x}", books.next),
            },
            name: request.name.clone(),
            capacity: self
                .capacity_within(
                    wanted.bounds,
                    smallest_for(backing, capabilities, &self.options.fs_type),
                    origin.as_ref(),
                )
                .or_else(|refused| self.remembered_size(&request.name, refused))
                .inspect_err(|_| self.spoil_source(wanted))?,
            backing,
            capabilities: capabilities.clone(),
            parameters: request.parameters.clone(),
            mutable_parameters: request.mutable_parameters.clone(),
            source,
            zone: self.zone_for(books, request.accessibility_requirements.as_ref())?,
            created: false,
            ephemeral: false,
            format: origin.and_then(|origin| origin.format).filter(|_| !self.breaks(Sabotage::CloneIsEmpty)),
            attached: Default::default(),
            staged: Default::default(),
            targets: Default::default(),
        })
    }

    /// The backing among the parameters.
    pub(super) fn backing_named(
        &self,
        parameters: &BTreeMap<String, String>,
    ) -> Result<Option<Backing>, Status> {
        let Some(name) = parameters.get(BACKING_KEY) else { return Ok(None) };
        <Backing as clap::ValueEnum>::from_str(name, false)
            .map(Some)
            .map_err(|_| Status::invalid_argument(format!("the parameter backing = `{name}` is unknown")))
    }

    fn backing_for(&self, capabilities: &[Capability]) -> Backing {
        // Several writers need a network share.
        let multi_writer = |capability: &Capability| {
            capability.access != Access::Block
                && capability.mode.is_multi_node()
                && !capability.mode.is_read_only()
        };
        if capabilities.iter().any(multi_writer) { Backing::Shared } else { self.options.backing }
    }

    /// Notes, for a sabotage, that a copy of the source was refused.
    fn spoil_source(&self, wanted: &Wanted<'_>) {
        wanted.source.iter().for_each(|source| self.remember(&format!("refused copy of {}", source.id())));
    }

    fn capacity_within(
        &self,
        (required, limit): (u64, Option<u64>),
        smallest: u64,
        origin: Option<&Origin>,
    ) -> Result<u64, Status> {
        let size = origin.map_or(DEFAULT_CAPACITY, |origin| origin.size);
        let is_cut_to_32_bits =
            required <= self.options.capacity && self.breaks(Sabotage::CreateCountsIn32Bits);
        let required = if is_cut_to_32_bits { required & u64::from(u32::MAX) } else { required };
        let capacity = match required {
            0 if self.breaks(Sabotage::CreateDefaultsOverLimit) => return Ok(2 * size),
            0 => limit.map_or(size, |limit| limit.min(size)),
            required => required,
        };
        let is_cut = self.breaks(Sabotage::CopyCutsItsSource);
        if let Some(origin) = origin.filter(|origin| capacity < origin.size && !is_cut) {
            if self.breaks(Sabotage::RefusedCopyLeaksDescriptor) {
                std::mem::forget(std::fs::File::open("/dev/null"));
            }
            let message = format!("{capacity} bytes are too few for a copy of {}", origin.size);
            return Err(Status::out_of_range(message));
        }
        if self.breaks(Sabotage::CreateRoundsDown) && capacity > smallest {
            return Ok(capacity >> 20 << 20);
        }
        // Rounded up to whole sectors and blocks.
        let capacity = capacity.max(smallest).next_multiple_of(4096);
        if self.breaks(Sabotage::CreateTooSmall) {
            return Ok((capacity / 2).next_multiple_of(4096));
        }
        if limit.is_some_and(|limit| limit < capacity) {
            return Err(Status::out_of_range(format!("a volume for this use has at least {capacity} bytes")));
        }
        if capacity > self.options.capacity && self.breaks(Sabotage::CreateTooLargeIsInternal) {
            return Err(Status::internal("there is no space"));
        }
        if capacity > self.options.capacity {
            return Err(Status::out_of_range(format!("{capacity} bytes are more than there are")));
        }
        Ok(capacity)
    }

    pub(super) fn must_fit(&self, books: &Books, capacity: u64) -> Result<(), Status> {
        let used: u64 = books.volumes.values().map(|volume| volume.capacity).sum();
        if used.saturating_add(capacity) > self.options.capacity {
            return Err(Status::resource_exhausted(format!("{capacity} bytes are more than is left")));
        }
        Ok(())
    }

    fn zone_for(
        &self,
        books: &Books,
        requirement: Option<&v1::TopologyRequirement>,
    ) -> Result<String, Status> {
        let is_known = |zone: &&String| books.nodes.values().any(|node| node.zone == **zone);
        let first = || books.nodes.values().next().map_or_else(String::new, |node| node.zone.clone());
        let Some(requirement) = requirement.filter(|_| self.can(Ability::Topology)) else {
            return Ok(first());
        };
        if requirement.preferred.is_empty() && self.breaks(Sabotage::TopologyNeedsPreferred) {
            return Err(Status::resource_exhausted("no node is in a preferred zone"));
        }
        let places = || requirement.preferred.iter().chain(&requirement.requisite);
        if places().next().is_none() || self.breaks(Sabotage::CreateIgnoresTopology) {
            return Ok(first());
        }
        let mut zones = places().filter_map(|place| place.segments.get(topology::ZONE_KEY));
        zones.find(is_known).cloned().ok_or_else(|| match self.breaks(Sabotage::TopologyRefusedAsInternal) {
            true => Status::internal("no node is in any of these zones"),
            false => Status::resource_exhausted("no node is in any of these zones"),
        })
    }
}

/// The smallest size for all capabilities.
fn smallest_for(backing: Backing, capabilities: &[Capability], default_fs: &str) -> u64 {
    let needs = capabilities.iter().filter_map(|capability| match (&capability.access, backing) {
        (Access::Mount { fs_type, .. }, Backing::Loop) if fs_type.is_empty() => {
            filesystem::smallest(default_fs)
        }
        (Access::Mount { fs_type, .. }, Backing::Loop) => filesystem::smallest(fs_type),
        _ => None,
    });
    needs.max().unwrap_or(SMALLEST).max(SMALLEST)
}

/// Fails with the difference if an existing volume of the name does not suit the request.
fn is_compatible(volume: &Volume, wanted: &Wanted<'_>) -> Result<(), &'static str> {
    let Wanted { request, capabilities, source, bounds: (required, limit) } = wanted;
    let differs = if volume.capacity < *required {
        "capacity"
    } else if limit.is_some_and(|limit| volume.capacity > limit) {
        "limit"
    } else if volume.parameters != request.parameters {
        "parameters"
    } else if volume.source != *source {
        "content source"
    } else if volume.capabilities != *capabilities {
        "capabilities"
    } else if !is_reachable(volume, request.accessibility_requirements.as_ref()) {
        "place"
    } else {
        return Ok(());
    };
    Err(differs)
}

/// Whether a volume is in one of the requisite topologies. Preferred topologies do not count.
fn is_reachable(volume: &Volume, requirement: Option<&v1::TopologyRequirement>) -> bool {
    let places = requirement.map(|requirement| &requirement.requisite).filter(|places| !places.is_empty());
    let is_at = |place: &v1::Topology| place.segments.get(topology::ZONE_KEY) == Some(&volume.zone);
    places.is_none_or(|places| places.iter().any(is_at))
}

fn already_exists(differs: &str) -> Status {
    Status::already_exists(format!("a volume of this name exists with another {differs}"))
}

fn backing_name(backing: Backing) -> String {
    let value = clap::ValueEnum::to_possible_value(&backing).expect("no backing is hidden");
    value.get_name().to_owned()
}
