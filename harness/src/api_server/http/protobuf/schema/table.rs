//! The table of the messages: for each field its number, its name in JSON and what it holds.
//!
//! Without a word it is a text; `?` marks a pointer, `[…]` a list, `{…}` a map, and `~` a message whose fields stand in
//! the object itself. Left out is what only a cluster writes: the state of containers, images, managed fields.

/// The kinds that are read, by their groups.
pub(super) const OBJECTS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "ConfigMap",
            "Endpoints",
            "Event",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    ("coordination.k8s.io", &["Lease"]),
    ("events.k8s.io", &["Event"]),
    ("authentication.k8s.io", &["TokenRequest", "TokenReview"]),
    ("authorization.k8s.io", &["SelfSubjectAccessReview", "SubjectAccessReview"]),
];

/// A message on each line.
pub(super) const MESSAGES: &str = "
ObjectMeta: 1 name, 2 generateName, 3 namespace, 5 uid, 6 resourceVersion, 7 generation int, 8 creationTimestamp Time, \
    9 deletionTimestamp Time?, 10 deletionGracePeriodSeconds int?, 11 labels {text}, 12 annotations {text}, \
    13 ownerReferences [OwnerReference], 14 finalizers [text]
OwnerReference: 5 apiVersion, 1 kind, 3 name, 4 uid, 6 controller bool?, 7 blockOwnerDeletion bool?
LabelSelector: 1 matchLabels {text}, 2 matchExpressions [LabelSelectorRequirement]
LabelSelectorRequirement: 1 key, 2 operator, 3 values [text]
DeleteOptions: 1 gracePeriodSeconds int?, 2 preconditions Preconditions?, 3 orphanDependents bool?, \
    4 propagationPolicy ?, 5 dryRun [text]
Preconditions: 1 uid ?, 2 resourceVersion ?
ObjectReference: 1 kind, 2 namespace, 3 name, 4 uid, 5 apiVersion, 6 resourceVersion, 7 fieldPath
LocalObjectReference: 1 name
SecretReference: 1 name, 2 namespace
TypedLocalObjectReference: 1 apiGroup ?, 2 kind, 3 name
TypedObjectReference: 1 apiGroup ?, 2 kind, 3 name, 4 namespace ?

Lease: 1 metadata ObjectMeta, 2 spec LeaseSpec
LeaseSpec: 1 holderIdentity ?, 2 leaseDurationSeconds int?, 3 acquireTime MicroTime?, 4 renewTime MicroTime?, \
    5 leaseTransitions int?, 6 strategy ?, 7 preferredHolder ?

Event: 1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason, 4 message, 5 source EventSource, \
    6 firstTimestamp Time, 7 lastTimestamp Time, 8 count int, 9 type, 10 eventTime MicroTime, 11 series EventSeries?, \
    12 action, 13 related ObjectReference?, 14 reportingComponent, 15 reportingInstance
EventOfItsGroup: 1 metadata ObjectMeta, 2 eventTime MicroTime, 3 series EventSeries?, 4 reportingController, \
    5 reportingInstance, 6 action, 7 reason, 8 regarding ObjectReference, 9 related ObjectReference?, 10 note, 11 type, \
    12 deprecatedSource EventSource, 13 deprecatedFirstTimestamp Time, 14 deprecatedLastTimestamp Time, \
    15 deprecatedCount int
EventSource: 1 component, 2 host
EventSeries: 1 count int, 2 lastObservedTime MicroTime

Secret: 1 metadata ObjectMeta, 2 data {bytes}, 3 type, 4 stringData {text}, 5 immutable bool?
ConfigMap: 1 metadata ObjectMeta, 2 data {text}, 3 binaryData {bytes}, 4 immutable bool?
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status NamespaceStatus
NamespaceSpec: 1 finalizers [text]
NamespaceStatus: 1 phase
ServiceAccount: 1 metadata ObjectMeta, 2 secrets [ObjectReference], 3 imagePullSecrets [LocalObjectReference], \
    4 automountServiceAccountToken bool?
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec
ServiceSpec: 1 ports [ServicePort], 2 selector {text}, 3 clusterIP, 4 type, 5 externalIPs [text], 7 sessionAffinity, \
    8 loadBalancerIP, 9 loadBalancerSourceRanges [text], 10 externalName, 11 externalTrafficPolicy, \
    12 healthCheckNodePort int, 13 publishNotReadyAddresses bool, 17 ipFamilyPolicy ?, 18 clusterIPs [text], \
    19 ipFamilies [text], 20 allocateLoadBalancerNodePorts bool?, 21 loadBalancerClass ?, 22 internalTrafficPolicy ?
ServicePort: 1 name, 2 protocol, 3 port int, 4 targetPort IntOrString, 5 nodePort int, 6 appProtocol ?
Endpoints: 1 metadata ObjectMeta, 2 subsets [EndpointSubset]
EndpointSubset: 1 addresses [EndpointAddress], 2 notReadyAddresses [EndpointAddress], 3 ports [EndpointPort]
EndpointAddress: 1 ip, 2 targetRef ObjectReference?, 3 hostname, 4 nodeName ?
EndpointPort: 1 name, 2 port int, 3 protocol, 4 appProtocol ?

Node: 1 metadata ObjectMeta, 2 spec NodeSpec, 3 status NodeStatus
NodeSpec: 1 podCIDR, 3 providerID, 4 unschedulable bool, 5 taints [Taint], 7 podCIDRs [text]
Taint: 1 key, 2 value, 3 effect, 4 timeAdded Time?
NodeStatus: 1 capacity {Quantity}, 2 allocatable {Quantity}, 3 phase, 4 conditions [NodeCondition], \
    5 addresses [NodeAddress], 7 nodeInfo NodeSystemInfo, 9 volumesInUse [text], 10 volumesAttached [AttachedVolume]
NodeCondition: 1 type, 2 status, 3 lastHeartbeatTime Time, 4 lastTransitionTime Time, 5 reason, 6 message
NodeAddress: 1 type, 2 address
NodeSystemInfo: 1 machineID, 2 systemUUID, 3 bootID, 4 kernelVersion, 5 osImage, 6 containerRuntimeVersion, \
    7 kubeletVersion, 8 kubeProxyVersion, 9 operatingSystem, 10 architecture
AttachedVolume: 1 name, 2 devicePath

PersistentVolumeClaim: 1 metadata ObjectMeta, 2 spec ClaimSpec, 3 status ClaimStatus
ClaimSpec: 1 accessModes [text], 2 resources VolumeResources, 3 volumeName, 4 selector LabelSelector?, \
    5 storageClassName ?, 6 volumeMode ?, 7 dataSource TypedLocalObjectReference?, \
    8 dataSourceRef TypedObjectReference?, 9 volumeAttributesClassName ?
VolumeResources: 1 limits {Quantity}, 2 requests {Quantity}
ClaimStatus: 1 phase, 2 accessModes [text], 3 capacity {Quantity}, 4 conditions [ClaimCondition], \
    5 allocatedResources {Quantity}, 7 allocatedResourceStatuses {text}, 8 currentVolumeAttributesClassName ?, \
    9 modifyVolumeStatus ModifyVolumeStatus?
ClaimCondition: 1 type, 2 status, 3 lastProbeTime Time, 4 lastTransitionTime Time, 5 reason, 6 message
ModifyVolumeStatus: 1 targetVolumeAttributesClassName, 2 status

PersistentVolume: 1 metadata ObjectMeta, 2 spec VolumeSpec, 3 status VolumeStatus
VolumeSpec: 1 capacity {Quantity}, 2 ~VolumeSource, 3 accessModes [text], 4 claimRef ObjectReference?, \
    5 persistentVolumeReclaimPolicy, 6 storageClassName, 7 mountOptions [text], 8 volumeMode ?, \
    9 nodeAffinity NodeAffinity?, 10 volumeAttributesClassName ?
VolumeStatus: 1 phase, 2 message, 3 reason, 4 lastPhaseTransitionTime Time?
VolumeSource: 3 hostPath HostPath?, 5 nfs Nfs?, 7 iscsi Iscsi?, 20 local Local?, 22 csi Csi?
HostPath: 1 path, 2 type ?
Nfs: 1 server, 2 path, 3 readOnly bool
Iscsi: 1 targetPortal, 2 iqn, 3 lun int, 4 iscsiInterface, 5 fsType, 6 readOnly bool, 7 portals [text], \
    8 chapAuthDiscovery bool, 10 secretRef SecretReference?, 11 chapAuthSession bool, 12 initiatorName ?
Local: 1 path, 2 fsType ?
Csi: 1 driver, 2 volumeHandle, 3 readOnly bool, 4 fsType, 5 volumeAttributes {text}, \
    6 controllerPublishSecretRef SecretReference?, 7 nodeStageSecretRef SecretReference?, \
    8 nodePublishSecretRef SecretReference?, 9 controllerExpandSecretRef SecretReference?, \
    10 nodeExpandSecretRef SecretReference?
NodeAffinity: 1 required NodeSelector?
NodeSelector: 1 nodeSelectorTerms [NodeSelectorTerm]
NodeSelectorTerm: 1 matchExpressions [NodeSelectorRequirement], 2 matchFields [NodeSelectorRequirement]
NodeSelectorRequirement: 1 key, 2 operator, 3 values [text]

Pod: 1 metadata ObjectMeta, 2 spec PodSpec, 3 status PodStatus
PodSpec: 1 volumes [PodVolume], 2 containers [Container], 3 restartPolicy, 4 terminationGracePeriodSeconds int?, \
    5 activeDeadlineSeconds int?, 6 dnsPolicy, 7 nodeSelector {text}, 8 serviceAccountName, 10 nodeName, \
    11 hostNetwork bool, 12 hostPID bool, 13 hostIPC bool, 15 imagePullSecrets [LocalObjectReference], 16 hostname, \
    17 subdomain, 19 schedulerName, 20 initContainers [Container], 21 automountServiceAccountToken bool?, \
    22 tolerations [Toleration], 24 priorityClassName, 25 priority int?, 29 runtimeClassName ?, 37 hostUsers bool?
PodStatus: 1 phase, 3 message, 4 reason
PodVolume: 1 name, 2 ~PodVolumeSource
PodVolumeSource: 1 hostPath HostPath?, 2 emptyDir EmptyDir?, 7 nfs Nfs?, 10 persistentVolumeClaim ClaimSource?
EmptyDir: 1 medium, 2 sizeLimit Quantity?
ClaimSource: 1 claimName, 2 readOnly bool
Container: 1 name, 2 image, 3 command [text], 4 args [text], 5 workingDir, 6 ports [ContainerPort], 7 env [Variable], \
    8 resources Resources, 9 volumeMounts [VolumeMount], 14 imagePullPolicy, 15 securityContext SecurityContext?, \
    16 stdin bool, 18 tty bool, 21 volumeDevices [VolumeDevice]
ContainerPort: 1 name, 2 hostPort int, 3 containerPort int, 4 protocol, 5 hostIP
Variable: 1 name, 2 value
Resources: 1 limits {Quantity}, 2 requests {Quantity}
VolumeMount: 1 name, 2 readOnly bool, 3 mountPath, 4 subPath, 5 mountPropagation ?, 6 subPathExpr
VolumeDevice: 1 name, 2 devicePath
SecurityContext: 2 privileged bool?, 4 runAsUser int?, 5 runAsNonRoot bool?, 6 readOnlyRootFilesystem bool?, \
    7 allowPrivilegeEscalation bool?, 8 runAsGroup int?
Toleration: 1 key, 2 operator, 3 value, 4 effect, 5 tolerationSeconds int?

StorageClass: 1 metadata ObjectMeta, 2 provisioner, 3 parameters {text}, 4 reclaimPolicy ?, 5 mountOptions [text], \
    6 allowVolumeExpansion bool?, 7 volumeBindingMode ?, 8 allowedTopologies [TopologyTerm]
TopologyTerm: 1 matchLabelExpressions [TopologyRequirement]
TopologyRequirement: 1 key, 2 values [text]
VolumeAttributesClass: 1 metadata ObjectMeta, 2 driverName, 3 parameters {text}
VolumeAttachment: 1 metadata ObjectMeta, 2 spec AttachmentSpec, 3 status AttachmentStatus
AttachmentSpec: 1 attacher, 2 source AttachmentSource, 3 nodeName
AttachmentSource: 1 persistentVolumeName ?, 2 inlineVolumeSpec VolumeSpec?
AttachmentStatus: 1 attached bool, 2 attachmentMetadata {text}, 3 attachError VolumeError?, 4 detachError VolumeError?
VolumeError: 1 time Time, 2 message, 3 errorCode int?
CSIDriver: 1 metadata ObjectMeta, 2 spec DriverSpec
DriverSpec: 1 attachRequired bool?, 2 podInfoOnMount bool?, 3 volumeLifecycleModes [text], 4 storageCapacity bool?, \
    5 fsGroupPolicy ?, 6 tokenRequests [DriverTokenRequest], 7 requiresRepublish bool?, 8 seLinuxMount bool?, \
    9 nodeAllocatableUpdatePeriodSeconds int?, 10 serviceAccountTokenInSecrets bool?
DriverTokenRequest: 1 audience, 2 expirationSeconds int?
CSINode: 1 metadata ObjectMeta, 2 spec CsiNodeSpec
CsiNodeSpec: 1 drivers [CsiNodeDriver]
CsiNodeDriver: 1 name, 2 nodeID, 3 topologyKeys [text], 4 allocatable VolumeNodeResources?
VolumeNodeResources: 1 count int?
CSIStorageCapacity: 1 metadata ObjectMeta, 2 nodeTopology LabelSelector?, 3 storageClassName, 4 capacity Quantity?, \
    5 maximumVolumeSize Quantity?

TokenRequest: 1 metadata ObjectMeta, 2 spec TokenRequestSpec
TokenRequestSpec: 1 audiences [text], 3 boundObjectRef BoundObject?, 4 expirationSeconds int?
BoundObject: 1 kind, 2 apiVersion, 3 name, 4 uid
TokenReview: 1 metadata ObjectMeta, 2 spec TokenReviewSpec
TokenReviewSpec: 1 token, 2 audiences [text]
SubjectAccessReview: 1 metadata ObjectMeta, 2 spec AccessSpec
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec SelfAccessSpec
AccessSpec: 1 resourceAttributes ResourceAttributes?, 2 nonResourceAttributes PathAttributes?, 3 user, 4 groups [text], \
    6 uid
SelfAccessSpec: 1 resourceAttributes ResourceAttributes?, 2 nonResourceAttributes PathAttributes?
ResourceAttributes: 1 namespace, 2 verb, 3 group, 4 version, 5 resource, 6 subresource, 7 name
PathAttributes: 1 path, 2 verb
";
