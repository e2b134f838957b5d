//! Images that are larger than their limits, or no longer wanted.

use std::error::Error;

use super::*;

#[test]
fn image_is_unpacked_up_to_its_limits_only() {
    let limited = |data: &[u8], bytes, entries| {
        let limits = Limits { bytes, entries };
        Unpacked::of(
            |ground| {
                fs::write(ground.join("image"), data).unwrap();
                ground.join("image")
            },
            limits,
        )
        .result
    };
    let tar = Tar::default().file("a", "12345").file("b", "12345").end();
    let layout = Made::layout(&[gzip(&tar)], &here()).tar();
    limited(&layout, 10, 100).unwrap();
    for (bytes, entries) in [(9, 100), (10, 1)] {
        let error = limited(&layout, bytes, entries).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
        assert!(error.to_string().contains(&format!("{bytes} bytes or {entries} entries")), "{error}");
    }
    // A few bytes that decompress to many.
    let bomb = gzip(&vec![0; 64 << 20]);
    assert!(matches!(limited(&bomb, 1 << 10, 10).unwrap_err(), ImageError::TooLarge { .. }));
}

#[test]
fn layer_is_compared_with_its_digest_and_unpacked_within_the_same_limits() {
    let layer = Tar::default().file("a", &"x".repeat(20_000)).end();
    for made in [Made::layout(&[gzip(&layer)], &here()), Made::saved(&[layer])] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image");
        fs::write(&file, made.tar()).unwrap();
        let image = Image::open(&file, Limits::default(), &wanted).unwrap();
        let image = Image { limits: Limits { bytes: 20_000, entries: 1 }, ..image };
        let root = tempfile::tempdir().unwrap();
        image.unpack(root.path(), &wanted).unwrap();
    }
}

#[test]
fn tarball_is_read_up_to_its_limits_and_while_it_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image");
    fs::write(&file, Tar::default().file("a", &"x".repeat(64 << 10)).end()).unwrap();
    let limits = Limits { bytes: 1 << 10, entries: 2 };
    let error = Image::open(&file, limits, &wanted).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
    let error = Image::open(&file, Limits::default(), &|| true).unwrap_err();
    assert!(matches!(error, ImageError::Unwanted { .. }), "{error}");
}

#[test]
fn long_names_and_extensions_are_limited() {
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let long =
            |length| Tar::default().add(kind, "long", "", &vec![b'x'; length]).file("driver", "x").end();
        for image in [long(2 << 20), Made::layout(&[long(2 << 20)], &here()).tar()] {
            let unpacked = Unpacked::bytes(&image);
            let source = unpacked.result.as_ref().unwrap_err().source().unwrap().to_string();
            assert!(source.contains("have more than 1024 KiB"), "{kind:?}: {source}");
        }
    }
    // A file that is left out or hides another one has no header that is too long.
    let large = vec![0; 2 << 20];
    let left_out = Tar::default()
        .add(EntryType::Char, "dev/null", "", &large)
        .add(EntryType::Regular, ".wh.x", "", &large)
        .add(EntryType::Directory, "empty", "", &large)
        .file("driver", "x");
    assert_eq!(Unpacked::bytes(&left_out.end()).text("driver").as_deref(), Some("x"));
}

#[test]
fn unpacking_ends_when_it_is_no_longer_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image");
    fs::write(&file, Made::layout(&two_layers(), &here()).tar()).unwrap();
    let image = Image::open(&file, Limits::default(), &wanted).unwrap();
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(image.unpack(root.path(), &|| true), Err(ImageError::Unwanted { .. })));
}
