//! A driver in its container image: it starts as the image says, prepared commands see its root, and nothing of the image is
//! left. Images that cannot be used are refused with one sentence and what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serial_test::serial;
use tests::{Ended, Residue, Volproof, architecture, has_root, image_with_fake_csi, layer, layout};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
#[serial]
fn a_driver_in_its_image_serves_the_node() {
    if !has_root() {
        return;
    }
    let volproof = Volproof::new();
    image_with_fake_csi(volproof.directory());
    // The commands beside the driver see its root, and do not have its environment.
    let manifest = r#"
image = "image"
command = ["--endpoint={endpoint}", "--node={node}", "--state-dir={state}"]
[per_case]
prepare = ["/bin/sh", "-c", "test -f {root}/driver.sh && test ! -e {root}/written && test -z \"$FROM_IMAGE\""]
"#;
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let ended = volproof
        .file("driver.toml", manifest)
        .env(name, &mark)
        .args("run csi::lifecycle csi::recovery csi::publish --driver driver.toml --report out")
        .run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    ended.leaves_nothing(&before, &mark, PATIENCE);
}

#[test]
#[serial]
fn killed_run_leaves_nothing_of_its_image() {
    if !has_root() {
        return;
    }
    let volproof = Volproof::new();
    image_with_fake_csi(volproof.directory());
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let (run, directory) = volproof
        .env(name, &mark)
        .args("run csi::lifecycle --repeat 20 --image image --driver-cmd")
        .arg("--endpoint={endpoint} --node={node} --state-dir={state}")
        .start();
    let is_image = |path: PathBuf| path.to_string_lossy().ends_with("-image");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let files = fs::read_dir(directory.path().join("tmp")).expect("a directory");
        if files.flatten().any(|entry| is_image(entry.path())) {
            break;
        }
        assert!(Instant::now() < deadline, "the image is not unpacked");
        std::thread::sleep(Duration::from_millis(5));
    }
    let group = Pid::from_raw(run.id().try_into().expect("a process id"));
    killpg(group, Signal::SIGKILL).expect("the run is there");
    let ended = Ended::of(run.wait_with_output().expect("its output"), directory);
    assert_eq!(ended.code, None, "{}", ended.told());
    ended.leaves_nothing(&before, &mark, PATIENCE);
}

/// The output of a run with an image that cannot be used.
fn refusal(make: impl FnOnce(&Path), code: i32) -> String {
    let volproof = Volproof::new();
    make(volproof.directory());
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let ended = volproof.env(name, &mark).args("run csi::lifecycle --image image").run();
    assert_eq!(ended.code, Some(code), "{}", ended.told());
    let told = ended.told();
    ended.leaves_nothing(&before, &mark, PATIENCE);
    told
}

#[test]
#[serial]
fn images_that_cannot_be_used_are_refused_with_what_to_do() {
    let script = |text: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(text.len() as u64);
        let mut layer = tar::Builder::new(Vec::new());
        layer.append_data(&mut header, "bin/sh", text.as_bytes()).expect("a file");
        layer.into_inner().expect("the end of the archive")
    };
    let told = refusal(|_| {}, 2);
    assert!(
        told.contains("there is no image `<here>/image`") && told.contains("hint: `docker save"),
        "{told}"
    );
    let told = refusal(|at| fs::write(at.join("image"), "no image").expect("a file"), 2);
    assert!(told.contains("is no image that can be read") && told.contains("gzip or zstd"), "{told}");
    let told = refusal(|at| fs::create_dir(at.join("image")).expect("a directory"), 2);
    assert!(told.contains("has no `index.json`") && told.contains("root = \"DIR\""), "{told}");
    let told = refusal(|at| drop(layout(&at.join("image"), &script(""), "sparc64")), 2);
    assert!(told.contains("is for linux/sparc64, and this machine is"), "{told}");
    assert!(told.contains("--platform linux/"), "{told}");
    let damage = |at: &Path| {
        let layer = layout(&at.join("image"), &script(""), architecture());
        fs::write(layer, "not the layer").expect("a file");
    };
    let told = refusal(damage, 2);
    assert!(told.contains("is damaged: `blobs/sha256/") && told.contains("save it again"), "{told}");
    let told = refusal(|at| fs::write(at.join("image"), script("x")).expect("a file"), 2);
    assert!(told.contains("does not say how it is started") && told.contains("--driver-cmd"), "{told}");
    let hostile = |at: &Path| {
        let mut layer = script("");
        layer[..10].copy_from_slice(b"../x/../sh");
        let mut header = tar::Header::from_byte_slice(&layer[..512]).clone();
        header.set_cksum();
        layer[..512].copy_from_slice(header.as_bytes());
        layout(&at.join("image"), &layer, architecture());
    };
    let told = refusal(hostile, 2);
    assert!(told.contains("which leaves its root"), "{told}");
}

#[test]
#[serial]
fn missing_interpreter_in_an_image_is_named() {
    if !has_root() {
        return;
    }
    let make = |at: &Path| {
        let root = at.join("files");
        fs::create_dir_all(root.join("bin")).expect("a directory");
        let sh = root.join("bin/sh");
        fs::write(&sh, "#!/usr/bin/no-python3\n").expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&sh, mode).expect("it is ours");
        layout(&at.join("image"), &layer(&root), architecture());
    };
    let told = refusal(make, 4);
    assert!(told.contains("cannot start `/bin/sh` in `"), "{told}");
    assert!(told.contains("its interpreter `/usr/bin/no-python3` is not there; add it to the"), "{told}");
}

#[test]
#[serial]
fn manifest_made_from_the_answers_of_a_driver_names_its_image() {
    if !has_root() {
        return;
    }
    let volproof = Volproof::new();
    image_with_fake_csi(volproof.directory());
    let ended = volproof
        .args("init --image image --driver-cmd")
        .arg("--endpoint={endpoint} --node={node} --state-dir={state}")
        .run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let here = ended.directory.path();
    let text = fs::read_to_string(here.join("driver.toml")).expect("it was written");
    assert!(text.contains(&format!("image = \"{}\"\n", here.join("image").display())), "{text}");
    assert!(text.contains("command = [\"--endpoint={endpoint}\", \"--node={node}\","), "{text}");
    assert_eq!(fs::read_dir(here.join("tmp")).expect("a directory").count(), 0, "the image is gone");
}
