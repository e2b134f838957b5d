//! The snapshot metadata service: blocks of a snapshot that hold data, and blocks that differ between two snapshots.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use csi_proto::v1::{self, snapshot_metadata_server::SnapshotMetadata};
use tokio_stream::Iter;
use tonic::{Request, Response, Status};

use crate::books::{Backing, Snapshot};
use crate::driver::Driver;
use crate::kernel::{KernelError, copy};
use crate::size::signed;
use crate::validate;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Blocks in a message, unless the caller wants fewer.
const MOST: usize = 1000;

#[derive(Debug, Clone)]
pub(crate) struct MetadataService {
    pub(crate) driver: Arc<Driver>,
}

type Answers<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

#[tonic::async_trait]
impl SnapshotMetadata for MetadataService {
    type GetMetadataAllocatedStream = Answers<v1::GetMetadataAllocatedResponse>;
    type GetMetadataDeltaStream = Answers<v1::GetMetadataDeltaResponse>;

    async fn get_metadata_allocated(
        &self,
        request: Request<v1::GetMetadataAllocatedRequest>,
    ) -> Result<Response<Self::GetMetadataAllocatedStream>, Status> {
        let (driver, request) = (Arc::clone(&self.driver), request.into_inner());
        crate::run(move || {
            validate::required("snapshot_id", &request.snapshot_id)?;
            validate::map("secrets", &request.secrets)?;
            let snapshot = driver.image_snapshot(&request.snapshot_id)?;
            let from = offset(request.starting_offset, &snapshot)?;
            let ranges = driver.allocated(&snapshot, from)?;
            Ok(answers(&ranges, request.max_results, |block_metadata| v1::GetMetadataAllocatedResponse {
                block_metadata_type: v1::BlockMetadataType::FixedLength.into(),
                volume_capacity_bytes: signed(snapshot.size),
                block_metadata,
            }))
        })
        .await
    }

    async fn get_metadata_delta(
        &self,
        request: Request<v1::GetMetadataDeltaRequest>,
    ) -> Result<Response<Self::GetMetadataDeltaStream>, Status> {
        let (driver, request) = (Arc::clone(&self.driver), request.into_inner());
        crate::run(move || {
            validate::required("base_snapshot_id", &request.base_snapshot_id)?;
            validate::required("target_snapshot_id", &request.target_snapshot_id)?;
            validate::map("secrets", &request.secrets)?;
            let base = driver.image_snapshot(&request.base_snapshot_id)?;
            let target = driver.image_snapshot(&request.target_snapshot_id)?;
            if base.source != target.source {
                return Err(Status::invalid_argument("the snapshots are of two volumes"));
            }
            let from = offset(request.starting_offset, &target)?;
            let ranges = driver.changed(&base, &target, from)?;
            Ok(answers(&ranges, request.max_results, |block_metadata| v1::GetMetadataDeltaResponse {
                block_metadata_type: v1::BlockMetadataType::FixedLength.into(),
                volume_capacity_bytes: signed(target.size),
                block_metadata,
            }))
        })
        .await
    }
}

impl Driver {
    fn image_snapshot(&self, id: &str) -> Result<Snapshot, Status> {
        let snapshot = self.snapshot(id)?;
        if snapshot.backing != Backing::Loop {
            return Err(Status::failed_precondition("only a snapshot of an image has blocks"));
        }
        Ok(snapshot)
    }

    /// Numbers of the blocks that hold data, from an offset on.
    fn allocated(&self, snapshot: &Snapshot, from: u64) -> Result<Vec<u64>, Status> {
        let path = self.contents_of_snapshot(snapshot);
        let failed = |source| KernelError::path("read", &path, source);
        let file = File::open(&path).map_err(failed)?;
        let extents = copy::extents(&file).map_err(failed)?;
        let blocks =
            extents.into_iter().flat_map(|(start, length)| start / BLOCK..(start + length).div_ceil(BLOCK));
        Ok(blocks.filter(|block| (block + 1) * BLOCK > from).collect())
    }

    /// Numbers of the blocks that differ. Only blocks with data in one of the snapshots are compared.
    fn changed(&self, base: &Snapshot, target: &Snapshot, from: u64) -> Result<Vec<u64>, Status> {
        let mut candidates = self.allocated(base, from)?;
        candidates.extend(self.allocated(target, from)?);
        candidates.sort_unstable();
        candidates.dedup();
        let open = |snapshot| {
            let path = self.contents_of_snapshot(snapshot);
            File::open(&path).map_err(|source| KernelError::path("open", &path, source))
        };
        let (base, target) = (open(base)?, open(target)?);
        let read = |file: &File, block: u64| {
            let mut content = vec![0; BLOCK as usize];
            // Beyond the end of the smaller snapshot a block reads as zeroes.
            let mut filled = 0;
            while filled < content.len() {
                match file.read_at(&mut content[filled..], block * BLOCK + filled as u64) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => filled += count,
                }
            }
            content
        };
        candidates.retain(|block| read(&base, *block) != read(&target, *block));
        Ok(candidates)
    }
}

fn offset(starting_offset: i64, snapshot: &Snapshot) -> Result<u64, Status> {
    let from = u64::try_from(starting_offset).ok().filter(|from| *from <= snapshot.size);
    from.ok_or_else(|| Status::out_of_range("starting_offset is not within the volume"))
}

fn answers<T>(blocks: &[u64], max_results: i32, message: impl Fn(Vec<v1::BlockMetadata>) -> T) -> Answers<T> {
    let most = usize::try_from(max_results).ok().filter(|most| *most > 0).unwrap_or(MOST).min(MOST);
    let range =
        |block: &u64| v1::BlockMetadata { byte_offset: signed(block * BLOCK), size_bytes: signed(BLOCK) };
    let messages: Vec<_> =
        blocks.chunks(most).map(|chunk| Ok(message(chunk.iter().map(range).collect()))).collect();
    tokio_stream::iter(messages)
}
