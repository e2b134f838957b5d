//! Calls converted to JSON from their bytes.

use csi_proto::{descriptor, json, v1};
use expect_test::{Expect, expect};
use prost_reflect::prost::Message;

fn check(method: &str, request: &impl Message, expected: Expect) {
    let value = json::request(method, &request.encode_to_vec()).expect("the bytes are this method's request");
    expected.assert_eq(&serde_json::to_string_pretty(&value).expect("all keys of a value are strings"));
}

fn map(entries: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn publish_request_is_converted_with_secrets_and_tokens_masked() {
    let request = v1::NodePublishVolumeRequest {
        volume_id: "v".to_owned(),
        target_path: "/t".to_owned(),
        volume_capability: Some(v1::VolumeCapability {
            access_mode: Some(v1::volume_capability::AccessMode {
                mode: v1::volume_capability::access_mode::Mode::SingleNodeWriter.into(),
            }),
            access_type: Some(v1::volume_capability::AccessType::Mount(Default::default())),
        }),
        readonly: true,
        secrets: map(&[("user", "root"), ("password", "hunter2")]),
        volume_context: map(&[("share", "x"), (json::TOKENS_KEY, "{\"aud\":{\"token\":\"eyJ\"}}")]),
        ..Default::default()
    };
    check(
        "/csi.v1.Node/NodePublishVolume",
        &request,
        expect![[r#"
            {
              "readonly": true,
              "secrets": {
                "password": "***",
                "user": "***"
              },
              "targetPath": "/t",
              "volumeCapability": {
                "accessMode": {
                  "mode": "SINGLE_NODE_WRITER"
                },
                "mount": {}
              },
              "volumeContext": {
                "csi.storage.k8s.io/serviceAccount.tokens": "***",
                "share": "x"
              },
              "volumeId": "v"
            }"#]],
    );
}

#[test]
fn wide_integers_are_strings_and_a_bare_method_name_is_accepted() {
    let request = v1::NodeExpandVolumeRequest {
        capacity_range: Some(v1::CapacityRange { required_bytes: 1 << 53, limit_bytes: 0 }),
        ..Default::default()
    };
    check(
        "NodeExpandVolume",
        &request,
        expect![[r#"
            {
              "capacityRange": {
                "requiredBytes": "9007199254740992"
              }
            }"#]],
    );
}

#[test]
fn wrapper_messages_become_bare_values() {
    let response = v1::ProbeResponse { ready: Some(false) };
    let value = json::response("/csi.v1.Identity/Probe", &response.encode_to_vec()).unwrap();
    assert_eq!(value, serde_json::json!({ "ready": false }));
}

#[test]
fn unknown_method_and_malformed_bytes_are_errors() {
    assert!(matches!(json::request("/csi.v1.Node/Nothing", &[]), Err(json::JsonError::UnknownMethod { .. })));
    assert!(matches!(
        json::request("/csi.v1.Node/NodeStageVolume", &[0xff]),
        Err(json::JsonError::Decode { .. })
    ));
}

#[test]
fn every_field_named_secrets_is_marked_as_secret() {
    let unmarked: Vec<_> = descriptor::pool()
        .all_messages()
        .filter(|message| message.package_name() == "csi.v1")
        .filter_map(|message| message.get_field_by_name("secrets"))
        .filter(|field| !descriptor::is_secret(field))
        .collect();
    assert_eq!(unmarked, []);
    assert_eq!(descriptor::secret_fields().count(), 19);
}

#[test]
fn debug_masks_secrets_and_tokens() {
    let secrets = map(&[("password", "hunter2")]);
    let stage = v1::NodeStageVolumeRequest {
        volume_id: "v".to_owned(),
        secrets: secrets.clone(),
        ..Default::default()
    };
    let context = map(&[("share", "x"), (json::TOKENS_KEY, "{\"aud\":{\"token\":\"eyJ\"}}")]);
    let publish = v1::NodePublishVolumeRequest { volume_context: context, ..Default::default() };
    let create = v1::CreateVolumeRequest { secrets, ..Default::default() };
    expect![[r#"
        [NodeStageVolumeRequest {"secrets":{"password":"***"},"volumeId":"v"}]
        NodePublishVolumeRequest {"volumeContext":{"csi.storage.k8s.io/serviceAccount.tokens":"***","share":"x"}}
        CreateVolumeRequest {"secrets":{"password":"***"}}"#]]
    .assert_eq(&format!("{:?}\n{publish:?}\n{create:?}", [stage]));
}
