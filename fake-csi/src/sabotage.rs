//! The sabotages: small bugs that each break one promise.

/// Declares the sabotages: variant, name on the command line, broken promise, and the bug in a sentence.
macro_rules! sabotages {
    ($($variant:ident $name:literal $promise:literal $bug:literal)*) => {
        /// A small, real bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Sabotage {
            $($variant,)*
        }

        impl Sabotage {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The id of the promise it breaks.
            pub fn promise(self) -> &'static str {
                match self { $(Self::$variant => $promise,)* }
            }

            /// The bug in a sentence.
            pub fn bug(self) -> &'static str {
                match self { $(Self::$variant => $bug,)* }
            }
        }
    };
}

sabotages! {
    WrongPluginName "wrong-plugin-name" "DRV-001"
        "GetPluginInfo answers a name with a blank and parentheses in it."
    CapabilityWithoutCall "capability-without-call" "DRV-002"
        "NodeExpandVolume is reported, and answers UNIMPLEMENTED."
    CapabilitiesFlap "capabilities-flap" "DRV-003"
        "STAGE_UNSTAGE_VOLUME is missing from every second answer."
    NeverReady "never-ready" "DRV-004"
        "Probe answers that the plugin is not ready, while it serves all other calls."
    NodeIdChanges "node-id-changes" "DRV-005"
        "NodeGetInfo answers another id each time."
    TopologyMissing "topology-missing" "DRV-006"
        "NodeGetInfo answers no topology, although the plugin reports accessibility constraints."
    ProbeMissing "probe-missing" "DRV-007"
        "Probe answers UNIMPLEMENTED."
    TopologyMalformed "topology-malformed" "DRV-008"
        "NodeGetInfo answers a zone with a blank in it."
    StageAnswersGarbage "stage-answers-garbage" "DRV-009"
        "NodeStageVolume answers bytes that are no message of CSI the first time."
    CreateForgetsIdempotence "create-forgets-idempotence" "DRV-010"
        "CreateVolume makes a second volume of the same name."
    CreateIgnoresConflict "create-ignores-conflict" "DRV-011"
        "CreateVolume answers the existing volume of a name, although the request differs."
    CreateTooSmall "create-too-small" "DRV-012"
        "CreateVolume makes a volume of half the size."
    CreateReportsWrongSize "create-reports-wrong-size" "DRV-013"
        "CreateVolume answers twice the size of the volume."
    CloneIsEmpty "clone-is-empty" "DRV-014"
        "A volume from a content source is empty."
    CopyKeepsSmallFileSystem "copy-keeps-small-file-system" "DRV-015"
        "The file system of a larger copy stays as small as its source."
    CreateAcceptsAnything "create-accepts-anything" "DRV-016"
        "CreateVolume makes a volume with capabilities that it does not support."
    CreateRefusesLongNames "create-refuses-long-names" "DRV-017"
        "CreateVolume refuses a name of more than 64 bytes."
    CreateTrustsNames "create-trusts-names" "DRV-018"
        "CreateVolume writes a file at a path that contains the name."
    DeleteTrustsIds "delete-trusts-ids" "DRV-018"
        "DeleteVolume removes the directory at a path that contains the id."
    CreateIgnoresTopology "create-ignores-topology" "DRV-019"
        "CreateVolume ignores the requested zones."
    DeleteForgetsIdempotence "delete-forgets-idempotence" "DRV-020"
        "DeleteVolume answers NOT_FOUND for a volume that is gone."
    DeleteWhileInUse "delete-while-in-use" "DRV-021"
        "DeleteVolume deletes a volume that is published."
    DeleteLeavesImage "delete-leaves-image" "DRV-022"
        "DeleteVolume forgets the volume and leaves its file."
    ValidateConfirmsAnything "validate-confirms-anything" "DRV-023"
        "ValidateVolumeCapabilities confirms capabilities that the volume does not support."
    ListLosesAVolume "list-loses-a-volume" "DRV-024"
        "ListVolumes leaves out the first volume of every page after the first."
    ListRepeatsToken "list-repeats-token" "DRV-024"
        "ListVolumes answers the first page, with the same next_token, for every token."
    ListAcceptsAnyToken "list-accepts-any-token" "DRV-025"
        "ListVolumes answers the first page for an unknown token."
    CapacityNeverShrinks "capacity-never-shrinks" "DRV-026"
        "GetCapacity does not subtract the existing volumes."
    CapabilityWithoutMode "capability-without-mode" "DRV-027"
        "CreateVolume takes a capability without an access mode for one of a single writer."
    CreateNeedsSize "create-needs-size" "DRV-028"
        "CreateVolume refuses a request without a capacity range."
    ValidateConfirmsNothing "validate-confirms-nothing" "DRV-029"
        "ValidateVolumeCapabilities never confirms."
    AttachForgetsIdempotence "attach-forgets-idempotence" "DRV-030"
        "ControllerPublishVolume attaches again when it is repeated, with another publish context."
    StalePublishContext "stale-publish-context" "DRV-031"
        "ControllerPublishVolume answers the context of an earlier attachment."
    AttachToManyNodes "attach-to-many-nodes" "DRV-032"
        "ControllerPublishVolume publishes a single-node volume to a second node."
    AttachToUnknownNode "attach-to-unknown-node" "DRV-033"
        "ControllerPublishVolume publishes to a node that does not exist."
    DetachForgetsIdempotence "detach-forgets-idempotence" "DRV-034"
        "ControllerUnpublishVolume answers NOT_FOUND the second time."
    AttachBeyondLimit "attach-beyond-limit" "DRV-035"
        "ControllerPublishVolume ignores the node's limit of volumes."
    SnapshotSharesBlocks "snapshot-shares-blocks" "DRV-036"
        "A snapshot shares the file of its volume."
    SnapshotForgetsIdempotence "snapshot-forgets-idempotence" "DRV-037"
        "CreateSnapshot takes a second snapshot of the same name."
    GroupMissesOne "group-misses-one" "DRV-038"
        "A group's answer leaves out the first snapshot."
    ListSnapshotsIgnoresFilter "list-snapshots-ignores-filter" "DRV-039"
        "ListSnapshots lists all snapshots, whatever the filter."
    StageWithoutMount "stage-without-mount" "DRV-040"
        "NodeStageVolume answers OK and mounts nothing."
    StageStacksMounts "stage-stacks-mounts" "DRV-041"
        "NodeStageVolume mounts once more on top when it is repeated."
    StageFormatsAgain "stage-formats-again" "DRV-042"
        "NodeStageVolume makes the file system anew each time."
    StageIgnoresFsType "stage-ignores-fs-type" "DRV-043"
        "NodeStageVolume makes the driver's default file system, whatever the request."
    StageIgnoresMountFlags "stage-ignores-mount-flags" "DRV-044"
        "NodeStageVolume drops the mount flags."
    StageFailsButMounts "stage-fails-but-mounts" "DRV-045"
        "NodeStageVolume mounts, and then answers INTERNAL the first time."
    StageFollowsLink "stage-follows-link" "DRV-046"
        "NodeStageVolume mounts where a symbolic link at the staging path leads."
    StageIgnoresConflict "stage-ignores-conflict" "DRV-047"
        "NodeStageVolume answers OK for a volume that is staged with another capability."
    StageAcceptsStaleContext "stage-accepts-stale-context" "DRV-048"
        "NodeStageVolume ignores the publish context."
    PublishIgnoresGroup "publish-ignores-group" "DRV-049"
        "NodePublishVolume ignores the volume mount group."
    PublishIgnoresReadOnly "publish-ignores-read-only" "DRV-050"
        "NodePublishVolume mounts a read-only volume for writing."
    BlockIgnoresReadOnly "block-ignores-read-only" "DRV-050"
        "NodePublishVolume publishes a writable device for a read-only request."
    PublishWrongVolume "publish-wrong-volume" "DRV-051"
        "NodePublishVolume shows another volume that is staged on the node, or an empty directory if there is none."
    BlockTargetIsRegularFile "block-target-is-regular-file" "DRV-052"
        "NodePublishVolume of a raw device binds a regular file to the target."
    PublishStacksMounts "publish-stacks-mounts" "DRV-053"
        "NodePublishVolume mounts once more on top when it is repeated."
    PublishWithoutStaging "publish-without-staging" "DRV-054"
        "NodePublishVolume binds the staging path without checking that the volume is staged."
    PublishCreatesFile "publish-creates-file" "DRV-055"
        "NodePublishVolume creates an empty file at the target and mounts nothing."
    PublishFollowsLink "publish-follows-link" "DRV-056"
        "NodePublishVolume mounts where a symbolic link at the target leads."
    PublishIgnoresMountFlags "publish-ignores-mount-flags" "DRV-057"
        "NodePublishVolume mounts at the target without the mount flags, also without those of the staging mount."
    PublishIgnoresConflict "publish-ignores-conflict" "DRV-058"
        "NodePublishVolume answers OK for a target that is published in another way."
    PublishIgnoresSingleWriter "publish-ignores-single-writer" "DRV-059"
        "NodePublishVolume publishes a single-writer volume at a second target."
    UnpublishLeavesMount "unpublish-leaves-mount" "DRV-060"
        "NodeUnpublishVolume answers OK and leaves the target mounted."
    PublishRecordsLate "publish-records-late" "DRV-060"
        "NodePublishVolume mounts, and records a moment later what there is to unmount."
    UnpublishKeepsTarget "unpublish-keeps-target" "DRV-061"
        "NodeUnpublishVolume unmounts and leaves the empty target."
    UnpublishForgetsIdempotence "unpublish-forgets-idempotence" "DRV-062"
        "NodeUnpublishVolume fails when it is repeated."
    UnpublishTakesAllTargets "unpublish-takes-all-targets" "DRV-063"
        "NodeUnpublishVolume unmounts every target of the volume."
    UnpublishDeletesData "unpublish-deletes-data" "DRV-064"
        "NodeUnpublishVolume empties the directory before it unmounts it."
    UnpublishRemovesAll "unpublish-removes-all" "DRV-064"
        "NodeUnpublishVolume unmounts the target once, and then removes all that it finds there."
    UnpublishRemovesSiblings "unpublish-removes-siblings" "DRV-065"
        "NodeUnpublishVolume removes the files beside the target."
    UnpublishLazily "unpublish-lazily" "DRV-066"
        "NodeUnpublishVolume detaches a mount that is in use."
    InlineVolumeStays "inline-volume-stays" "DRV-067"
        "NodeUnpublishVolume keeps an inline volume and its data."
    InlineUnpublishNotFound "inline-unpublish-not-found" "DRV-068"
        "NodeUnpublishVolume of an inline volume is NOT_FOUND the second time."
    UnpublishNeedsMount "unpublish-needs-mount" "DRV-069"
        "NodeUnpublishVolume fails when the target is no longer mounted."
    UnstageSucceedsButMounted "unstage-succeeds-but-mounted" "DRV-070"
        "NodeUnstageVolume answers OK and leaves the staging path mounted."
    UnstageForgetsIdempotence "unstage-forgets-idempotence" "DRV-071"
        "NodeUnstageVolume fails when it is repeated."
    UnstageLosesLastWrite "unstage-loses-last-write" "DRV-072"
        "NodeUnstageVolume loses the data that was not yet on disk."
    StageLeaksLoopDevice "stage-leaks-loop-device" "DRV-073"
        "NodeStageVolume attaches a second loop device and never detaches it."
    UnstageRemovesDirectory "unstage-removes-directory" "DRV-074"
        "NodeUnstageVolume removes the staging directory."
    UnstageWhilePublished "unstage-while-published" "DRV-075"
        "NodeUnstageVolume unmounts the targets that are still published."
    PublishReplacesRecord "publish-replaces-record" "DRV-076"
        "NodePublishVolume puts a symbolic link where the node's record beside the target was."
    ExpandForgetsDevice "expand-forgets-device" "DRV-080"
        "NodeExpandVolume does not grow the device."
    ExpandForgetsFileSystem "expand-forgets-file-system" "DRV-081"
        "NodeExpandVolume grows the device and not the file system."
    ExpandReportsOldSize "expand-reports-old-size" "DRV-082"
        "ControllerExpandVolume answers the size the volume had before."
    ExpandForgetsIdempotence "expand-forgets-idempotence" "DRV-083"
        "ControllerExpandVolume fails when the volume already has the size."
    StatsOfTheHost "stats-of-the-host" "DRV-084"
        "NodeGetVolumeStats answers the usage of the machine's root file system."
    StatsOfAnyPath "stats-of-any-path" "DRV-085"
        "NodeGetVolumeStats measures a path where the volume is not."
    AlwaysHealthy "always-healthy" "DRV-086"
        "NodeGetVolumeStats reports a normal condition when the mount is gone."
    ModifyAppliesHalf "modify-applies-half" "DRV-087"
        "ControllerModifyVolume refuses a parameter after it has applied all of them."
    WrongCodeForMissingField "wrong-code-for-missing-field" "DRV-090"
        "A request without a required field gets INTERNAL."
    IgnoresOperationsInFlight "ignores-operations-in-flight" "DRV-091"
        "Operations on the same volume run at the same time."
    OneOperationAtATime "one-operation-at-a-time" "DRV-092"
        "While a call is in flight every other call gets ABORTED."
    DeadlocksInParallel "deadlocks-in-parallel" "DRV-093"
        "A node call that arrives during another one is never answered."
    SecretsInLog "secrets-in-log" "DRV-094"
        "Secrets and tokens are written to the log."
    SecretsInErrors "secrets-in-errors" "DRV-094"
        "The first call with secrets fails, and its message repeats them."
    ForgetsOnRestart "forgets-on-restart" "DRV-095"
        "A restarted driver has forgotten all volumes."
    RestartUnmounts "restart-unmounts" "DRV-096"
        "A restarted driver unmounts every target."
    DiesOfUnicode "dies-of-unicode" "DRV-097"
        "A name or path that is not ASCII kills the driver."
    StageLeavesProcess "stage-leaves-process" "DRV-098"
        "NodeStageVolume leaves a process running."
    WrongCodeForUnknownVolume "wrong-code-for-unknown-volume" "DRV-099"
        "A call for a volume that does not exist gets INTERNAL."
    StageForgetsIdempotence "stage-forgets-idempotence" "DRV-100"
        "NodeStageVolume fails when it is repeated."
    PublishForgetsIdempotence "publish-forgets-idempotence" "DRV-101"
        "NodePublishVolume fails when it is repeated."
    AttachIgnoresConflict "attach-ignores-conflict" "DRV-102"
        "ControllerPublishVolume answers OK for a volume that is published to the node in another way."
    SnapshotRefusesLongNames "snapshot-refuses-long-names" "DRV-017"
        "CreateSnapshot refuses a name of more than 64 bytes."
    CreateDropsParameters "create-drops-parameters" "DRV-157"
        "CreateVolume drops mutable parameters that it does not know."
    AbortedCallKeepsLock "aborted-call-keeps-lock" "DRV-130"
        "A volume of which a call was ABORTED stays locked for ever."
    PublishLeaksDescriptor "publish-leaks-descriptor" "DRV-131"
        "NodePublishVolume opens a file and never closes it."
    ExpandAcceptsAnySize "expand-accepts-any-size" "DRV-140"
        "ControllerExpandVolume answers OK and the size that was asked for, whatever there is."
    ExpandLeftToNobody "expand-left-to-nobody" "DRV-141"
        "ControllerExpandVolume leaves the file system to the node service, which does not report EXPAND_VOLUME."
    DeleteSnapshotForgetsIdempotence "delete-snapshot-forgets-idempotence" "DRV-142"
        "DeleteSnapshot answers NOT_FOUND for a snapshot that is gone."
    SnapshotDiesWithSource "snapshot-dies-with-source" "DRV-143"
        "DeleteVolume deletes the snapshots of the volume, too."
    SnapshotWithoutTime "snapshot-without-time" "DRV-144"
        "CreateSnapshot answers no creation_time."
    ListSnapshotsIgnoresLimit "list-snapshots-ignores-limit" "DRV-145"
        "ListSnapshots answers all snapshots on one page."
    SnapshotLosesUnsyncedWrite "snapshot-loses-unsynced-write" "DRV-146"
        "CreateSnapshot copies the image of a mounted file system without a sync."
    CloneSharesBlocks "clone-shares-blocks" "DRV-014"
        "A clone of the same size shares the file of its source."
    CloneDiesWithSource "clone-dies-with-source" "DRV-147"
        "DeleteVolume empties the clones of the volume, too."
    CopyKeepsSmallDevice "copy-keeps-small-device" "DRV-148"
        "A copy that is to be larger than its source has the size of the source."
    CopyCutsItsSource "copy-cuts-its-source" "DRV-149"
        "CreateVolume makes a copy that is smaller than its source, and cuts off the rest."
    CloneCollidesWithSource "clone-collides-with-source" "DRV-150"
        "A clone keeps the UUID of its source's file system, and is mounted as any other."
    CreateFromUnknownSource "create-from-unknown-source" "DRV-151"
        "CreateVolume makes an empty volume when the source does not exist."
    CopyHidesItsSource "copy-hides-its-source" "DRV-152"
        "CreateVolume answers a copy without its content source."
    GroupForgetsIdempotence "group-forgets-idempotence" "DRV-153"
        "CreateVolumeGroupSnapshot takes a second group of the same name."
    GroupDeleteKeepsSnapshots "group-delete-keeps-snapshots" "DRV-038"
        "DeleteVolumeGroupSnapshot deletes the group and keeps its snapshots."
    GroupWithoutTime "group-without-time" "DRV-154"
        "CreateVolumeGroupSnapshot answers no creation_time."
    ExpandAnswersEarly "expand-answers-early" "DRV-080"
        "NodeExpandVolume answers OK a moment before the device grows."
    StatsOfTheDeviceNode "stats-of-the-device-node" "DRV-084"
        "NodeGetVolumeStats of a device answers the usage of the file system that its node is on."
    StatsInBlocks "stats-in-blocks" "DRV-084"
        "NodeGetVolumeStats answers blocks and calls them bytes."
    StatsWithoutCondition "stats-without-condition" "DRV-086"
        "NodeGetVolumeStats answers no condition, although VOLUME_CONDITION is reported."
    ModifyForgetsIdempotence "modify-forgets-idempotence" "DRV-156"
        "ControllerModifyVolume fails when the volume has the parameters already."
    CreateCutsNames "create-cuts-names" "DRV-110"
        "CreateVolume tells names apart by their first 40 bytes."
    CreateIgnoresUse "create-ignores-use" "DRV-011"
        "CreateVolume answers the existing volume of a name for another use."
    CreateIgnoresSource "create-ignores-source" "DRV-011"
        "CreateVolume answers the existing copy of a name for another source."
    CreateIgnoresTakenLimit "create-ignores-taken-limit" "DRV-011"
        "CreateVolume answers the existing volume of a name although it is larger than the limit."
    CreateForgetsSource "create-forgets-source" "DRV-010"
        "CreateVolume takes a copy that is asked for again for one of another source."
    CreateDefaultsOverLimit "create-defaults-over-limit" "DRV-012"
        "CreateVolume with a limit alone makes a volume of the usual size."
    CreateRacesItself "create-races-itself" "DRV-010"
        "CreateVolume looks for the name, and records the volume a moment later."
    ListTrustsTokens "list-trusts-tokens" "DRV-097"
        "A list with a token for more entries than there are kills the driver."
    ListTrustsCounts "list-trusts-counts" "DRV-097"
        "A list of snapshots with a negative number of entries kills the driver."
    ListTellsHalf "list-tells-half" "DRV-111"
        "ListVolumes tells half the size of each volume."
    ExpandForgotten "expand-forgotten" "DRV-111"
        "ControllerExpandVolume leaves the size in the books as it was."
    ListSnapshotsForgetsSource "list-snapshots-forgets-source" "DRV-144"
        "ListSnapshots tells the id of a snapshot as that of its source."
    PublishAddsNoexec "publish-adds-noexec" "DRV-120"
        "NodePublishVolume mounts with noexec, whatever the flags."
    PublishOpensRoot "publish-opens-root" "DRV-121"
        "NodePublishVolume makes the root of the volume writable for everybody."
    ReadOnlyEverywhere "read-only-everywhere" "DRV-092"
        "A read-only target makes all targets of its volume read-only."
    GroupUnknownIsEmpty "group-unknown-is-empty" "DRV-155"
        "GetVolumeGroupSnapshot answers a group without snapshots when there is none."
}

impl std::str::FromStr for Sabotage {
    type Err = UnknownSabotage;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|sabotage| sabotage.name() == name).ok_or_else(|| UnknownSabotage {
            name: name.to_owned(),
            nearest: Self::ALL
                .iter()
                .map(|sabotage| sabotage.name())
                .max_by(|left, right| {
                    strsim::jaro_winkler(left, name).total_cmp(&strsim::jaro_winkler(right, name))
                })
                .unwrap_or_default(),
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there is no sabotage `{name}`; the nearest is `{nearest}`")]
pub struct UnknownSabotage {
    name: String,
    nearest: &'static str,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_promise_has_a_sabotage_and_every_sabotage_a_promise() {
        let promised: BTreeSet<_> = contracts::promise::all().map(|promise| promise.id).collect();
        let broken: BTreeSet<_> = Sabotage::ALL.iter().map(|sabotage| sabotage.promise()).collect();
        assert_eq!(promised, broken);
    }

    #[test]
    fn names_parse_and_a_misspelled_one_is_answered_with_the_nearest() {
        for sabotage in Sabotage::ALL {
            assert_eq!(sabotage.name().parse::<Sabotage>().unwrap(), *sabotage);
        }
        let refused = "publish-ignore-readonly".parse::<Sabotage>().unwrap_err();
        assert!(refused.to_string().contains("publish-ignores-read-only"), "{refused}");
    }
}
