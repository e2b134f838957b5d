//! Tests of valid manifests, and of the errors of invalid ones.

use api::AccessMode;
use expect_test::{Expect, expect};

use super::*;
use crate::Layout;

const GOOD: &str = r#"
name    = "block.csi.example.com"
command = ["./my-driver", "--endpoint={endpoint}", "--nodeid={node}", "--dir={state}", "{socket}"]

[volume]
size       = "64MiB"
fs_types   = ["ext4", "xfs"]
parameters = { tier = "fast" }

[guest]
files = ["/usr/sbin/mkfs.xfs"]

[timeouts]
start = "10s"
call  = "1500ms"

[secrets]
node_stage = "secrets/stage.toml"

[expected_failures]
"csi::expand::grows_while_mounted[block]" = "resize needs the device closed, our issue 41"
"csi::publish::a" = { reason = "our issue 42", until = "2027-03-31" }
"#;

fn parse(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::parse(text, Path::new("driver.toml"))
}

#[track_caller]
fn check(text: &str, expected: Expect) {
    let error = parse(text).expect_err("the text is wrong on purpose");
    let mut said = format!("error: {error}\n");
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        said += &format!("cause: {error}\n");
        cause = error.source();
    }
    if let Some(hint) = error.hint() {
        said += &format!("hint: {hint}\n");
    }
    expected.assert_eq(&said);
}

#[test]
fn byte_order_mark_before_a_manifest_is_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("driver.toml");
    fs::write(&path, format!("\u{feff}{GOOD}")).unwrap();
    assert_eq!(Manifest::read(&path).unwrap().name.as_deref(), Some("block.csi.example.com"));
}

#[test]
fn manifest_with_every_key_is_read() {
    let manifest = parse(GOOD).unwrap();
    assert_eq!(manifest.name.as_deref(), Some("block.csi.example.com"));
    assert_eq!(manifest.volume_size(), 64 << 20);
    assert_eq!(manifest.call_timeout(), Duration::from_millis(1500));
    assert_eq!(manifest.expected_failures.len(), 2);
    assert_eq!(
        Placeholders::new(&Layout::standard(), "node-1", false).fill_command(&manifest.command),
        [
            "./my-driver",
            "--endpoint=unix:///var/lib/volproof/drv/csi.sock",
            "--nodeid=node-1",
            "--dir=/var/lib/volproof/drv",
            "/var/lib/volproof/drv/csi.sock"
        ]
    );
}

#[test]
fn manifest_is_equal_after_serialization() {
    let manifest = parse(GOOD).unwrap();
    let sent = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&sent).unwrap(), manifest);
}

#[test]
fn relative_paths_are_resolved_in_the_directory_of_the_file() {
    let mut manifest = parse(GOOD).unwrap();
    manifest.resolve(Path::new("/home/me"));
    assert_eq!(manifest.command[0], "/home/me/my-driver");
    assert_eq!(manifest.secrets.node_stage.as_deref(), Some(Path::new("/home/me/secrets/stage.toml")));
}

#[test]
fn unknown_key_is_an_error_with_its_line_and_the_nearest_key() {
    check(
        "name = \"x\"\ncomand = [\"x\"]\n",
        expect![[r#"
            error: cannot use `driver.toml`, line 2, column 1
            cause: unknown key `comand`
            hint: did you mean `command`?
        "#]],
    );
    check(
        "command = [\"x\"]\n[volume]\nfs_type = \"ext4\"\n",
        expect![[r#"
            error: cannot use `driver.toml`, line 3, column 1
            cause: unknown key `fs_type`
            hint: did you mean `fs_types`?
        "#]],
    );
}

#[test]
fn wrong_value_is_an_error_with_its_line() {
    check(
        "command = [\"x\"]\n[volume]\nsize = \"64 apples\"\n",
        expect![[r#"
            error: cannot use `driver.toml`, line 3, column 8
            cause: cannot read `64 apples` as a size; write it like `64MiB`
        "#]],
    );
    check(
        "command = \"x\"\n",
        expect![[r#"
            error: cannot use `driver.toml`, line 1, column 11
            cause: the command is one string, and a list of words is needed
            hint: write `command = ["./my-driver", "--endpoint={endpoint}", "--nodeid={node}"]`
        "#]],
    );
}

#[test]
fn manifest_needs_either_a_command_or_a_socket() {
    check(
        "name = \"x\"\n",
        expect![[r#"
            error: cannot use `driver.toml`: it names none of `command`, `image` and `socket`
            hint: add `command = ["./my-driver", "--endpoint={endpoint}", "--nodeid={node}"]`
        "#]],
    );
    check(
        "command = [\"x\"]\nsocket = \"y\"\n",
        expect![[r#"
            error: cannot use `driver.toml`: it names a `command` and a `socket`, of which only one can be meant
            hint: remove one of the two
        "#]],
    );
    check(
        "root = \"x\"\nsocket = \"y\"\n",
        expect![[r#"
            error: cannot use `driver.toml`: it names a `root` or an `image`, and the driver behind its `socket` has its root already
            hint: remove `root` and `image`
        "#]],
    );
    check(
        "root = \"x\"\nimage = \"y\"\n",
        expect![[r#"
            error: cannot use `driver.toml`: it names a `root` and an `image`, of which only one can be meant
            hint: remove one of the two
        "#]],
    );
    check(
        "command = [\"x\"]\n[root_env]\nA = \"b\"\n",
        expect![[r#"
            error: cannot use `driver.toml`: it names `root_env`, and neither a `root` nor an `image`
            hint: name the `root` or `image`, or write the variables below `[env]`
        "#]],
    );
}

#[test]
fn program_of_an_image_is_a_path_in_that() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("driver.toml");
    std::fs::write(&file, "command = [\"./driver\"]\nroot = \"unpacked\"\n").expect("a file");
    let image = dir.path().join("driver.tar");
    let manifest = Manifest::read_with_image(&file, Some(&image)).expect("the image is in place of the root");
    assert_eq!(manifest.command, ["./driver"]);
    assert_eq!((manifest.root, manifest.image), (None, Some(image.clone())));
    std::fs::write(&file, "image = \"driver.tar\"\n").expect("a file");
    let manifest = Manifest::read(&file).expect("an image says how it is started");
    assert_eq!((manifest.command.len(), manifest.image), (0, Some(image.clone())));
    let manifest = Manifest::from_command_with_image("./driver --x", Some(&image)).expect("a command");
    assert_eq!(manifest.command, ["./driver", "--x"]);
}

#[test]
fn root_is_another_path_for_commands_beside_the_driver() {
    let driver = Placeholders::new(&Layout::standard(), "node-1", false);
    assert_eq!(driver.fill("{root}"), "/");
    assert_eq!(driver.clone().beside(Some(Path::new("/tmp/image"))).fill("{root}/etc"), "/tmp/image/etc");
    assert_eq!(driver.beside(None).fill("{root}etc"), "/etc");
}

#[test]
fn command_is_split_as_by_a_shell() {
    let words = |text: &str| Manifest::from_command(text).map(|manifest| manifest.command);
    assert_eq!(words("driver --a='b c' \"d\\\"e\" f\\ g").unwrap(), ["driver", "--a=b c", "d\"e", "f g"]);
    assert!(matches!(words("driver 'never closed"), Err(ManifestError::OpenQuote { .. })));
}

#[test]
fn unknown_placeholder_is_an_error_with_the_nearest_one() {
    check(
        "command = [\"x\", \"--at={endpont}\"]\n",
        expect![[r#"
            error: cannot use the command: there is no placeholder `{endpont}`
            hint: did you mean `{endpoint}`?
        "#]],
    );
    check(
        "command = [\"x\", \"{kubelet_directory}\"]\n",
        expect![[r#"
            error: cannot use the command: there is no placeholder `{kubelet_directory}`
            hint: known here: {socket}, {endpoint}, {node}, {state}, {kubeconfig}, {root}
        "#]],
    );
    assert!(matches!(Manifest::from_command("x {sock}"), Err(ManifestError::UnknownPlaceholder { .. })));
    assert!(matches!(Manifest::from_command("  "), Err(ManifestError::EmptyCommand)));
}

#[test]
fn braces_of_shell_json_and_awk_are_no_placeholders() {
    let command = r#"command = ["sh", "-c", "echo ${home} ${HOME} {\"a\": 1} {} {print} {{node}}"]"#;
    let unknown = parse(command).err().map(|error| error.to_string());
    assert_eq!(unknown.as_deref(), Some("cannot use the command: there is no placeholder `{print}`"));
    assert!(parse(&command.replace("{print}", "{print $1}")).is_ok());
}

#[test]
fn existing_volume_is_an_id_or_a_table() {
    let text = r#"
command = ["x"]
[volume]
existing = ["vol-a", { handle = "share", context = { server = "10.0.0.1" }, fs_type = "nfs" }]
"#;
    let existing = parse(text).unwrap().volume.existing;
    assert_eq!(existing[0], ExistingVolume::new("vol-a"));
    assert_eq!(existing[1].context["server"], "10.0.0.1");
    assert_eq!(existing[1].fs_type.as_deref(), Some("nfs"));
    check(
        "command = [\"x\"]\n[volume]\nexisting = [{ handel = \"x\" }]\n",
        expect![[r#"
            error: cannot use `driver.toml`, line 3, column 15
            cause: unknown key `handel`
            hint: did you mean `handle`?
        "#]],
    );
    let sent = serde_json::to_string(&existing).unwrap();
    assert_eq!(serde_json::from_str::<Vec<ExistingVolume>>(&sent).unwrap(), existing);
}

#[test]
fn volume_is_persistent_and_asked_for_its_kinds_unless_said_otherwise() {
    let volume = parse("command = [\"x\"]\n").unwrap().volume;
    assert_eq!((volume.persistent, volume.block, volume.file_system), (true, None, None));
    let volume = parse("command = [\"x\"]\n[volume]\npersistent = false\nblock = false\n").unwrap().volume;
    assert_eq!((volume.persistent, volume.block), (false, Some(false)));
}

#[test]
fn debug_output_has_no_secrets() {
    let masked = Sensitive::new("hunter2".to_owned());
    assert_eq!(format!("{masked:?}"), "<masked>");
    assert_eq!(masked.reveal(), "hunter2");
}

#[test]
fn host_path_that_does_not_exist_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("driver.toml");
    let read = |paths: &str| {
        std::fs::write(&file, format!("command = [\"./driver\"]\nhost_paths = {paths}\n")).expect("a file");
        Manifest::read(&file)
    };
    std::fs::create_dir(dir.path().join("data")).expect("a directory");
    let manifest = read(r#"["data", "/dev/null"]"#).expect("both exist");
    assert_eq!(manifest.host_paths, [dir.path().join("data"), PathBuf::from("/dev/null")]);
    let error = read(r#"["data", "dta"]"#).expect_err("one does not exist");
    let expected = format!(
        "cannot use `{}`: there is no `{}`, which it names in `host_paths`",
        file.display(),
        dir.path().join("dta").display()
    );
    assert_eq!(error.to_string(), expected);
    let both = parse("socket = \"x.sock\"\nhost_paths = [\"/data\"]\n").expect_err("it has them already");
    assert!(matches!(both, ManifestError::HostPathsOfRunning { .. }), "{both}");
}

#[test]
fn controller_has_a_socket_of_its_own() {
    let layout = Layout::standard();
    let filled =
        |is_controller| Placeholders::new(&layout, "node-1", is_controller).fill("{socket} {endpoint}");
    assert_eq!(filled(true), filled(false).replace("csi.sock", "controller.sock"));
}

#[test]
fn misspelled_placeholder_is_refused_wherever_it_stands() {
    for text in [
        "controller_command = [\"x\", \"{endpont}\"]",
        "env = { A = \"{endpont}\" }",
        "[per_case]\nprepare = [\"{endpont}\"]",
        "[per_case]\ncleanup = [\"{endpont}\"]",
    ] {
        let error = parse(&format!("command = [\"x\"]\n{text}\n")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use the command: there is no placeholder `{endpont}`",
            "{text}"
        );
        assert_eq!(error.hint().as_deref(), Some("did you mean `{endpoint}`?"), "{text}");
    }
}

#[test]
fn command_around_the_run_has_no_case_to_name() {
    check(
        "command = [\"x\"]\n[per_run]\nprepare = [\"mkdir\", \"{state}/a\"]\n",
        expect![[r#"
            error: cannot use [per_run]: `{state}` has a value in a case only
            hint: move the command to [per_case]
        "#]],
    );
    let manifest = parse("command = [\"x\"]\nenv = { A = \"1\", B = \"{node}\" }\n").unwrap();
    assert_eq!(manifest.per_run_env().into_keys().collect::<Vec<_>>(), ["A"]);
}

#[test]
fn file_of_a_manifest_cannot_leave_the_driver_s_directory() {
    for path in ["/etc/driver.yaml", "{state}/../x", "{state}/", "driver.yaml"] {
        let error = parse(&format!("command = [\"x\"]\n[files]\n\"{path}\" = \"\"\n")).unwrap_err();
        assert!(matches!(error, ManifestError::FileElsewhere { .. }), "{path}: {error}");
    }
    parse("command = [\"x\"]\n[files]\n\"{state}/a/b.yaml\" = \"\"\n").unwrap();
}

#[test]
fn disks_and_the_export_are_below_the_drivers_directory_and_large_enough() {
    let parse = |text: &str| Manifest::parse(text, Path::new("driver.toml"));
    let disk = |path: &str, size: &str| {
        format!("command = [\"x\"]\n[[disks]]\npath = \"{path}\"\nfs_type = \"xfs\"\n{size}\n")
    };
    parse(&disk("{state}/volumes", "options = [\"prjquota\"]")).unwrap();
    check(
        &disk("/data", ""),
        expect![[r#"
            error: cannot make `/data`: disks and exports are below {state} only
            hint: write `path = "{state}/volumes"`
        "#]],
    );
    check(
        "command = [\"x\"]\nnfs_export = \"{state}/../export\"\n",
        expect![[r#"
            error: cannot make `{state}/../export`: disks and exports are below {state} only
            hint: write `nfs_export = "{state}/volumes"`
        "#]],
    );
    check(
        "socket = \"/run/x.sock\"\nnfs_export = \"{state}/export\"\n",
        expect![[r#"
            error: cannot make disks, volume groups, targets or an export for a driver that runs already
            hint: remove `disks`, `volume_groups`, `iscsi_targets` and `nfs_export`, or give a `command` instead of the `socket`
        "#]],
    );
    check(
        "command = [\"x\"]\nnodes = 2\nstate = \"per_node\"\nnfs_export = \"{state}/export\"\n",
        expect![[r#"
            error: cannot make disks, volume groups, targets or an export with `state = "per_node"`
            hint: make them in `prepare`, or use `nodes = 1`
        "#]],
    );
    for bad in ["", "-vg", "..", "a/b", "a b"] {
        let error = parse(&format!("command = [\"x\"]\n[[volume_groups]]\nname = \"{bad}\"\n")).unwrap_err();
        assert!(matches!(error, ManifestError::VolumeGroupName { .. }), "{bad}: {error}");
    }
    parse("command = [\"x\"]\n[[volume_groups]]\nname = \"csi-vg\"\nsize = \"1GiB\"\n").unwrap();
    check(
        &disk("{state}/volumes", "size = \"64MiB\""),
        expect![[r#"
            error: cannot make the disk `{state}/volumes`: xfs needs at least 300 MiB
            hint: write `size = "300MiB"`; it takes the room of what is written to it
        "#]],
    );
}

#[test]
fn iscsi_target_has_a_name_of_the_standard_and_a_unit() {
    let target = |iqn: &str, more: &str| format!("[[iscsi_targets]]\niqn = \"{iqn}\"\n{more}\n");
    let driver = |targets: &str| format!("command = [\"x\"]\n{targets}");
    for bad in
        ["", "iqn", "iqn.2026-01", "iqn.2026-01.", "iqn.26-01.dev", "iqn.2026-1.dev", "iqn.2026-01.:disks"]
    {
        let error = parse(&driver(&target(bad, ""))).unwrap_err();
        assert!(matches!(error, ManifestError::TargetName { .. }), "{bad}: {error}");
    }
    check(
        &driver(&target("iqn.2026-01.dev.volproof:My Disks", "")),
        expect![[r#"
        error: cannot make the iSCSI target `iqn.2026-01.dev.volproof:My Disks`: its name is `iqn.`, a year and a month, a domain backwards, and small letters, digits and `.-:`
        hint: write `iqn = "iqn.2026-01.dev.volproof:disks"`
    "#]],
    );
    check(
        &driver(&target("iqn.2026-01.dev.volproof", "units = 0")),
        expect![[r#"
        error: cannot make the iSCSI target `iqn.2026-01.dev.volproof` with 0 units: a target has 1 to 255
        hint: write `units = 1`, or make more targets
    "#]],
    );
    let twice = target("iqn.2026-01.dev.volproof", "").repeat(2);
    check(
        &driver(&twice),
        expect![[r#"
        error: cannot make two iSCSI targets with the name `iqn.2026-01.dev.volproof`
        hint: give each an `iqn` of its own, or one of them all the `units`
    "#]],
    );
    let good = parse(&driver(&target("iqn.2026-01.dev.volproof:disks", "units = 255"))).unwrap();
    assert_eq!((good.iscsi_targets[0].units, good.iscsi_targets[0].bytes()), (255, 512 << 20));
    let good = parse(&driver(&target("iqn.2026-01.dev.volproof", "size = \"64MiB\""))).unwrap();
    assert_eq!((good.iscsi_targets[0].units, good.iscsi_targets[0].bytes()), (1, 64 << 20));
}

#[test]
fn controller_is_started_or_runs_already() {
    check(
        "command = [\"x\"]\ncontroller_command = [\"y\"]\ncontroller_socket = \"/run/c.sock\"\n",
        expect![[r#"
            error: cannot use `driver.toml`: it names a `controller_command` beside a `socket` or `controller_socket`, of which only one can be meant
            hint: remove one of the two
        "#]],
    );
}

#[test]
fn existing_volume_has_modes_and_secrets_of_its_own() {
    let text = "command = [\"x\"]\n[[volume.existing]]\nhandle = \"share-1\"\ncontext = { server = \"a\" }\n\
                fs_type = \"nfs4\"\naccess_modes = [\"ReadWriteMany\"]\nsecrets = { node_stage = \"stage.toml\" }\n";
    let mut manifest = parse(text).unwrap();
    manifest.resolve(Path::new("/home/me"));
    let [volume] = manifest.volume.existing.as_slice() else { panic!("{manifest:?}") };
    assert!(volume.offers(&[AccessMode::ReadWriteMany]) && !volume.offers(&[AccessMode::ReadWriteOnce]));
    let files: Vec<_> = manifest.all_secrets().flat_map(Secrets::files).collect();
    assert_eq!(files, [Path::new("/home/me/stage.toml")]);
}
