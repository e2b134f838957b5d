//! Image layouts in directories, and their indices.

use std::error::Error;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// The error of a layout with this index, which other documents may belong to.
fn opened_with(made: &mut Made, index: String, is_unwanted: &dyn Fn() -> bool) -> Result<Image, ImageError> {
    made.files.insert("index.json".into(), index.into_bytes());
    let directory = tempfile::tempdir().unwrap();
    made.directory(directory.path());
    Image::open(directory.path(), Limits::default(), is_unwanted)
}

/// An index with these entries, which are `DIGEST` or `DIGEST/VARIANT`.
fn index(media: &str, entries: &[String]) -> String {
    let entry = |text: &String| {
        let (digest, variant) = text.split_once('/').unwrap_or((text, ""));
        let variant = if variant.is_empty() { String::new() } else { format!(r#","variant":"{variant}""#) };
        let platform = format!(r#"{{"architecture":"{}","os":"linux"{variant}}}"#, here());
        format!(
            r#"{{"mediaType":"application/vnd.oci.image.{media}.v1+json","digest":"{digest}","size":1,"platform":{platform}}}"#
        )
    };
    let entries: Vec<String> = entries.iter().map(entry).collect();
    format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","))
}

#[test]
fn pipes_and_links_out_of_a_layout_are_not_read() {
    let unpacked = |change: &dyn Fn(&Path, &str)| {
        let made = Made::layout(&two_layers(), &here());
        let blob = made.files.keys().find(|name| name.starts_with("blobs/")).unwrap().clone();
        Unpacked::of(
            |ground| {
                let image = ground.join("image");
                made.directory(&image);
                change(&image, &blob);
                image
            },
            Limits::default(),
        )
        .result
        .map(drop)
    };
    let pipe = |path: &Path| {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    };
    let error = unpacked(&|image, blob| {
        fs::remove_file(image.join(blob)).unwrap();
        pipe(&image.join(blob));
    });
    assert!(matches!(error, Err(ImageError::Read { .. })), "{error:?}");
    // The same bytes, and not in the layout.
    let outside = tempfile::tempdir().unwrap();
    let moved = outside.path().join("blob");
    let error = unpacked(&|image, blob| {
        fs::copy(image.join(blob), &moved).unwrap();
        fs::remove_file(image.join(blob)).unwrap();
        symlink(&moved, image.join(blob)).unwrap();
    });
    assert!(matches!(error, Err(ImageError::NoBlob { .. })), "{error:?}");
    // A link that stays in the layout is followed.
    let followed = unpacked(&|image, blob| {
        fs::rename(image.join(blob), image.join("other")).unwrap();
        symlink("/other", image.join(blob)).unwrap();
    });
    followed.unwrap();
    let error = Unpacked::of(
        |ground| {
            pipe(&ground.join("image"));
            ground.join("image")
        },
        Limits::default(),
    );
    assert!(matches!(error.result, Err(ImageError::Read { .. })), "{:?}", error.result);
}

#[test]
fn index_in_an_index_is_read_once() {
    let mut made = Made::layout(&two_layers(), &here());
    let none = index("index", &[]);
    // Each of four names the next one a thousand times.
    let mut text = none.clone();
    for _ in 0..4 {
        let digest = made.blob(text.into_bytes());
        text = index("index", &vec![digest; 1000]);
    }
    let error = opened_with(&mut made, text, &wanted).unwrap_err();
    assert!(matches!(error, ImageError::Unknown { .. }), "{error}");
    let different = |n| format!("{none}{}", " ".repeat(n)).into_bytes();
    let many: Vec<String> = (0..65).map(|n| made.blob(different(n))).collect();
    let error = opened_with(&mut made, index("index", &many[..64]), &wanted).unwrap_err();
    assert!(matches!(error, ImageError::Unknown { .. }), "{error}");
    let error = opened_with(&mut made, index("index", &many), &wanted).unwrap_err();
    assert!(error.source().unwrap().to_string().contains("more than 64 indices"), "{error:?}");
    let error = opened_with(&mut made, index("index", &many[..1]), &|| true).unwrap_err();
    assert!(matches!(error, ImageError::Unwanted { .. }), "{error}");
}

#[test]
fn manifest_without_a_variant_is_preferred() {
    let manifest = |made: &Made| {
        let text = String::from_utf8(made.files["index.json"].clone()).unwrap();
        let at = text.rfind("sha256:").unwrap();
        text[at..at + "sha256:".len() + 64].to_owned()
    };
    let [lower, upper] = two_layers();
    let mut made = Made::layout(&[lower], &here());
    let one = manifest(&made);
    let other = Made::layout(&[upper], &here());
    let two = manifest(&other);
    made.files.extend(other.files);
    let of = |entries: &[String], made: &mut Made| {
        opened_with(made, index("manifest", entries), &wanted).map(|image| format!("sha256:{}", image.id()))
    };
    let newer = format!("{two}/v3");
    assert_eq!(of(&[one.clone(), newer.clone()], &mut made).unwrap(), one);
    assert_eq!(of(&[newer.clone(), one.clone()], &mut made).unwrap(), one);
    assert_eq!(of(std::slice::from_ref(&newer), &mut made).unwrap(), two);
    for several in [[one.clone(), two.clone()], [format!("{one}/v2"), newer]] {
        let error = of(&several, &mut made).unwrap_err();
        assert!(matches!(error, ImageError::Several { count: 2, .. }), "{error}");
    }
}
