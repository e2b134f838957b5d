//! The data of a volume: bytes, files, and their use.

use super::{Harm, Promise, advice, csi, must};

pub(super) const PROMISES: &[Promise] = &[
    must(
        "DRV-160",
        "each byte of a volume is as it was last written, whatever has happened to volume, driver and node since",
        csi(
            "CreateVolume; NodePublishVolume, volume_capability",
            "This operation MUST be idempotent ... SP MUST ensure the CO can use the published volume as described",
        ),
        &["topolvm/topolvm#1035", "longhorn/longhorn#9248"],
    )
    .costs(Harm::Loss),
    advice(
        "DRV-161",
        "files keep their times, attributes, links and modes, whatever happens to their volume",
        "CSI says nothing of them; a backup copies each file again whose time has changed",
        &[],
    )
    .costs(Harm::Data),
    advice(
        "DRV-162",
        "applications can do with the files of a volume what they do on any disk of a node",
        "CSI says nothing of the calls of a file system; an application that cannot lock or execute does not run",
        &[],
    ),
    advice(
        "DRV-163",
        "a file system that has gone read-only is not published as one that can be written",
        "CSI has the plugin see to it that a volume can be used as its capability describes, and has conditions for a medium that fails later; no sentence asks for a look at it on each publish. An application meets errors at its first write, and a new pod does not mend them",
        &["ydb-platform/nbs#2936", "longhorn/longhorn#8572"],
    )
    .costs(Harm::Data),
    advice(
        "DRV-164",
        "a call that failed because of a device succeeds when the device is well again",
        "CSI has the caller repeat what failed, and says nothing of the reason; a volume that never recovers needs hands",
        &["longhorn/longhorn#12006"],
    )
    .costs(Harm::Pod),
    must(
        "DRV-165",
        "a volume whose file system does not answer any more, since its FUSE daemon has died, is not published",
        csi(
            "NodePublishVolume, volume_capability",
            "SP MUST ensure the CO can use the published volume as described",
        ),
        &["ceph/ceph-csi#2634", "kubernetes-sigs/alibaba-cloud-csi-driver#923"],
    ),
];
