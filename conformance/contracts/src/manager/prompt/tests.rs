//! Traces of operations that start late, and of operations that start late for a good reason.

use super::*;
use crate::rule::script::{breaks, keeps, passes_over};

const MOUNT_FAILED: &str = "step add_pod uid-a\nwants v1/a yes\nstate v1/a VolumeMountUncertain\n\
    op start volume_mount v1/a\nop end volume_mount v1/a no\n";
const GONE: &str = "step set_state uid-a RuntimeGone\nwants v1/a -\n";
const ATTACHABLE: &str = r#"
    api create CSIDriver d.example.com case {"spec":{"attachRequired":true}}
    api create PersistentVolume pv-v1 case {"spec":{"csi":{"driver":"d.example.com","volumeHandle":"v1"}}}
"#;
const ATTACHED: &str = r#"
    api update Node node-1 controller {"status":{"volumesAttached":[{"name":"kubernetes.io/csi/d.example.com^v1"}]}}
"#;

#[test]
fn unmount_does_not_wait_for_the_back_off_of_a_mount() {
    let rule = &OWN_BACK_OFF_ONLY;
    let late = "waited for another operation's back-off";
    let unmount = "op start volume_unmount v1/a\n";
    keeps(rule, &[MOUNT_FAILED, GONE, "at 150\n", unmount, "at 9000\nnode kill"].concat(), &[]);
    breaks(rule, late, &[MOUNT_FAILED, GONE, "at 250\n", unmount].concat(), &[]);
    // An unmount waits for its own back-off, and for a running operation of its volume.
    let failed = "op start volume_unmount v1/a\nop end volume_unmount v1/a no\nat 450\n";
    passes_over(rule, &[MOUNT_FAILED, GONE, failed, unmount].concat(), &[]);
    let running = "op start volume_mount v1/a\nat 900\nop end volume_mount v1/a\n";
    passes_over(rule, &[MOUNT_FAILED, GONE, running, unmount].concat(), &[]);
    passes_over(rule, &[MOUNT_FAILED, "wants v1/a -\nat 900\n", unmount].concat(), &[]);
}

#[test]
fn mount_does_not_wait_until_everything_is_known() {
    let rule = &MOUNTED_MEANWHILE;
    let late = "a mount waited until everything was known";
    let restarted = "node kill\nnode start\nrecovered volumes\nstep add_pod uid-a\nwants v1/a yes\n";
    let mount = "op start volume_mount v1/a\n";
    keeps(rule, &[restarted, "at 900\n", mount, "at 9000\nrecovered pods"].concat(), &[]);
    breaks(rule, late, &[restarted, "at 9000\nrecovered pods\n", mount].concat(), &[]);
    // Then it is late for another reason.
    passes_over(rule, &["recovered pods\nwants v1/a yes\nat 9000\n", mount].concat(), &[]);
    // Reconstruction comes first.
    passes_over(rule, &["node kill\nnode start\nwants v1/a yes\nat 9000\n", mount].concat(), &[]);
}

#[test]
fn wanted_volume_has_an_operation() {
    let rule = &MOUNTED_AT_ONCE;
    let late = "no operation was started for a volume that a pod wants";
    let wanted = "step add_pod uid-a\nwants v1/a yes\n";
    keeps(
        rule,
        &[wanted, "at 900\nop start volume_mount v1/a\nat 9000\nop end volume_mount v1/a"].concat(),
        &[],
    );
    passes_over(rule, &[wanted, "state v1/a VolumeMounted\nat 9000\nnode kill"].concat(), &[]);
    passes_over(rule, &[MOUNT_FAILED, "at 9000\nop start volume_mount v1/a"].concat(), &[]);
    passes_over(rule, &[wanted, "step set_state uid-a Terminating\nat 9000\nnode kill"].concat(), &[]);
    breaks(rule, late, &[wanted, "at 1100\nop start volume_mount v1/a"].concat(), &[]);
    breaks(rule, late, &[MOUNT_FAILED, "driver start\nat 9000\nop start volume_mount v1/a"].concat(), &[]);
    let start = "at 5000\nop start verify_controller_attached_volume v1\n";
    keeps(rule, &[ATTACHABLE, "in-use v1\n", wanted, "at 4500\n", ATTACHED, start].concat(), &[]);
    breaks(rule, late, &[ATTACHABLE, "in-use v1\n", ATTACHED, wanted, start].concat(), &[]);
    // Without news of its Node object, the manager acts on the last version that it received.
    let unheard = "step hear Node\nstep miss Node\n";
    let waits = [ATTACHABLE, "in-use v1\n", wanted, unheard, ATTACHED].concat();
    passes_over(rule, &[&waits, start, "step hear Node"].concat(), &[]);
    breaks(rule, late, &[&waits, "step hear Node\n", start].concat(), &[]);
    breaks(rule, late, &[ATTACHABLE, "in-use v1\n", ATTACHED, unheard, wanted, start].concat(), &[]);
    let restarted = "node kill\nnode start\nop start volume_attach v2\nstep miss Node\n";
    passes_over(rule, &[ATTACHABLE, "in-use v1\n", ATTACHED, restarted, wanted, start].concat(), &[]);
    // A slow API server delays the news of the attachment, so the manager cannot act on it yet.
    let slow = "step api slow\n";
    passes_over(rule, &[slow, ATTACHABLE, "in-use v1\n", ATTACHED, wanted, start].concat(), &[]);
    let fast = [slow, ATTACHABLE, "in-use v1\n", ATTACHED, wanted, "step api fast\n", start].concat();
    breaks(rule, late, &fast, &[]);
    breaks(rule, late, &[slow, wanted, "at 1100\nop start volume_mount v1/a"].concat(), &[]);
    // A ReadWriteOncePod volume that a previous run staged can have another SELinux label: it is unstaged first, which
    // recovery delays until the first unmount or unstage.
    let once_pod = r#"
        api create PersistentVolume pv-v1 case {"spec":{"accessModes":["ReadWriteOncePod"],"csi":{"driver":"d.example.com","volumeHandle":"v1"}}}
    "#;
    let staged = "node kill\nnode start\nstate v1 DeviceMountUncertain\nop start volume_mount v2/b\nop end volume_mount v2/b\n";
    let later = "at 9000\nop start unmount_device v1\n";
    passes_over(rule, &[once_pod, staged, wanted, later].concat(), &[]);
    let torn_down = "op start volume_unmount v3/c\nop end volume_unmount v3/c\n";
    breaks(rule, late, &[once_pod, staged, torn_down, wanted, later].concat(), &[]);
    breaks(rule, late, &[staged, wanted, later].concat(), &[]);
    // A stage that is identified after other volumes were torn down waits for the node's object like them.
    let identified = ["node kill\nnode start\n", torn_down, "state v1 DeviceMountUncertain\n"].concat();
    passes_over(rule, &[once_pod, &identified, wanted, later].concat(), &[]);
    let not_reported = "step add_pod uid-a\nwants v1/a reportedInUse=false\n";
    passes_over(rule, &[ATTACHABLE, "in-use v1\n", ATTACHED, not_reported, start].concat(), &[]);
}

#[test]
fn unwanted_volume_is_torn_down() {
    let rule = &TAKEN_BACK_AT_ONCE;
    let late = "a volume that no pod wants was not torn down";
    let had = "state v1 DeviceGloballyMounted\nstate v1/a VolumeMounted\n";
    let unmounted = "op start volume_unmount v1/a\nop end volume_unmount v1/a\nstate v1/a -\n";
    let unstaged = "op start unmount_device v1";
    keeps(rule, &[had, GONE, "at 900\n", unmounted, "at 1800\n", unstaged].concat(), &[]);
    breaks(rule, late, &[had, GONE, "at 1100\n", unmounted, unstaged].concat(), &[]);
    breaks(rule, late, &[had, GONE, unmounted, "at 1100\n", unstaged].concat(), &[]);
    // After a restart the manager first recovers the state on disk.
    let restarted = ["node kill\nnode start\n", had, GONE].concat();
    passes_over(rule, &[&restarted, "at 9000\n", unmounted].concat(), &[]);
    breaks(rule, late, &[&restarted, unmounted, "at 9000\n", unstaged].concat(), &[]);
    passes_over(rule, &["step api slow\n", &restarted, unmounted, "at 9000\n", unstaged].concat(), &[]);
    // A volume that recovery finds later delays every teardown; a volume that this run mounts does not.
    let found = "state v2/b VolumeMountUncertain\nat 9000\n";
    passes_over(rule, &[&restarted, unmounted, found, unstaged].concat(), &[]);
    let beside = ["op start volume_unmount v2/c\n", found].concat();
    passes_over(rule, &[&restarted, unmounted, &beside, unstaged].concat(), &[]);
    let mounted = ["op start volume_mount v2/b\n", found].concat();
    breaks(rule, late, &[&restarted, unmounted, &mounted, unstaged].concat(), &[]);
}

#[test]
fn stuck_operation_blocks_no_other() {
    let rule = &STUCK_ALONE;
    let late = "waited while another volume was stuck";
    let stuck = "op start volume_mount v2/b\nat 100\n";
    let wanted = "step add_pod uid-a\nwants v1/a yes\n";
    let start = "op start volume_mount v1/a";
    keeps(rule, &[stuck, wanted, "at 900\n", start].concat(), &[]);
    passes_over(rule, &[wanted, "at 9000\n", start].concat(), &[]);
    breaks(rule, late, &[stuck, wanted, "at 1200\n", start].concat(), &[]);
}

#[test]
fn attachment_is_verified_after_the_node_status_lists_it() {
    let rule = &IN_ITS_TURN;
    let start = "op start verify_controller_attached_volume v1";
    let early = "verified before the node's status listed the volume as attached and in use";
    passes_over(rule, start, &[]);
    keeps(rule, &[ATTACHABLE, "in-use v1\n", ATTACHED, start].concat(), &[]);
    breaks(rule, early, &[ATTACHABLE, ATTACHED, start].concat(), &[]);
    breaks(rule, early, &[ATTACHABLE, "in-use v1\n", start].concat(), &[]);
    let slow = "step api slow\n";
    passes_over(rule, &[slow, ATTACHABLE, "in-use v1\n", start].concat(), &[]);
    breaks(rule, early, &[slow, ATTACHABLE, "in-use v1\nstep api fast\n", start].concat(), &[]);
    let unheard = [ATTACHABLE, "in-use v1\nstep miss Node\n"].concat();
    passes_over(rule, &[&unheard, start].concat(), &[]);
    breaks(rule, early, &[&unheard, "step hear Node\n", start].concat(), &[]);
}
