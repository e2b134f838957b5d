//! Bodies that a real client has sent, and what becomes of them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use expect_test::expect;

use super::*;

/// Bodies that a real client has sent: a method, a path and the body on each line.
pub(in super::super) fn recorded() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>)> {
    let lines = include_str!("recorded.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0], words[1], STANDARD.decode(words[2]).unwrap())
    })
}

#[test]
fn bodies_of_a_real_client_are_read_as_the_documents_they_are() {
    let read: Vec<String> = recorded().map(|(_, _, body)| read(&body).unwrap().to_string() + "\n").collect();
    expect![[r#"
        {"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lock","namespace":"kube-system"},"spec":{"acquireTime":"2026-01-02T03:04:05.678901Z","holderIdentity":"me","leaseDurationSeconds":15,"leaseTransitions":0,"renewTime":"2026-01-02T03:04:05.678901Z"}}
        {"apiVersion":"v1","count":1,"firstTimestamp":"2026-01-02T03:04:05Z","involvedObject":{"kind":"Node","name":"node-1"},"kind":"Event","message":"no space","metadata":{"generateName":"e"},"reason":"Full","type":"Warning"}
        {"apiVersion":"events.k8s.io/v1","eventTime":"2026-01-02T03:04:05.678901Z","kind":"Event","metadata":{"name":"ev"},"note":"fine","reason":"Ok","regarding":{"kind":"Node","name":"node-1"},"type":"Normal"}
        {"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{"n":""},"finalizers":["x.io/held"],"labels":{"k":"v"},"name":"a","namespace":"default"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"","volumeMode":"Block"}}
        {"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv"},"spec":{"accessModes":["ReadWriteMany"],"capacity":{"storage":"64Mi"},"claimRef":{"name":"a","namespace":"default","uid":"u"},"csi":{"driver":"d.io","nodeStageSecretRef":{"name":"s","namespace":"default"},"volumeAttributes":{"x":"y"},"volumeHandle":"h"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["z"]}]}]}},"persistentVolumeReclaimPolicy":"Delete"}}
        {"apiVersion":"v1","data":{"key":"YSB2ZXJ5IHNlY3JldA=="},"immutable":false,"kind":"Secret","metadata":{"name":"s"},"stringData":{"t":"plain"}}
        {"apiVersion":"v1","kind":"Service","metadata":{"name":"svc"},"spec":{"ports":[{"port":80}]}}
        {"apiVersion":"v1","kind":"Pod","metadata":{"name":"helper"},"spec":{"containers":[{"command":["sh"],"image":"i","name":"c","securityContext":{"privileged":true},"volumeMounts":[{"mountPath":"/v","name":"v"}]}],"volumes":[{"emptyDir":{},"name":"v"}]}}
        {"allowVolumeExpansion":false,"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"sc"},"parameters":{"p":"q"},"provisioner":"d.io"}
        {"apiVersion":"storage.k8s.io/v1","capacity":"5Gi","kind":"CSIStorageCapacity","metadata":{"generateName":"csisc-"},"nodeTopology":{"matchLabels":{"zone":"z"}},"storageClassName":"sc"}
        {"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"name":"va"},"spec":{"attacher":"d.io","nodeName":"node-1","source":{"persistentVolumeName":"pv"}}}
        {"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["x"],"expirationSeconds":600}}
        {"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"guessed"}}
        {"apiVersion":"coordination.k8s.io/v1","kind":"DeleteOptions","preconditions":{"uid":""},"propagationPolicy":"Foreground"}
    "#]].assert_eq(&read.concat());
}

#[test]
fn body_that_ends_early_is_refused_wherever_it_ends() {
    for (_, path, body) in recorded() {
        for end in 0..body.len() {
            // Some ends are those of a shorter body; none may be a panic.
            let _ = read(&body[..end]);
        }
        assert_eq!(read(&body[..3]).unwrap_err().code, 400, "{path}");
        assert_eq!(read(&body[1..]).unwrap_err().code, 400, "{path}");
    }
}

#[test]
fn kind_that_is_not_in_the_table_is_named() {
    // As an envelope with the kind alone.
    let mut body = MAGIC.to_vec();
    body.extend(*b"\x0a\x15\x0a\x07apps/v1\x12\x0aDeployment");
    let refused = read(&body).unwrap_err();
    assert_eq!(refused.code, 415);
    assert!(refused.message.contains("a Deployment of apps/v1 in protobuf"), "{}", refused.message);
}
