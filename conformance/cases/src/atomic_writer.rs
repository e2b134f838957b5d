//! How the files of a volume that are made from an object are replaced.

use crate::prelude::*;

/// The number of updates while a reader has the files.
const UPDATES: usize = 200;

/// A program that reads several files while they are replaced again and again always reads files of one generation.
///
/// Kubernetes, ConfigMap: mounted ConfigMaps are updated automatically. All files are switched at once.
#[case(needs = [])]
async fn reader_sees_one_generation(cx: &mut Cx) -> Result {
    let write = |text: &str| cx.config_map("settings", &[("a", text), ("b", text), ("c", text)]);
    write("0")?;
    let web = cx.pod("web").inline("settings", config_map("settings"), "/settings").start().await?;
    let inside = web.container().await?;
    let writing = async {
        for update in 1..=UPDATES {
            write(&update.to_string())?;
            web.sync().await?;
            cx.forget().await?;
        }
        Ok(())
    };
    let last = UPDATES.to_string();
    // The reader has to see several generations, or it has proved nothing.
    let (read, written) = tokio::join!(inside.follows("/settings", &["a", "b", "c"], &last), writing);
    written.and(read)?;
    web.stop().await
}

/// Unchanged content is not written again; a visible link that is missing is made again.
///
/// Kubernetes, ConfigMap: keys are projected as files into the volume.
#[case(needs = [])]
async fn unchanged_content_is_not_written(cx: &mut Cx) -> Result {
    cx.config_map("settings", &[("color", "blue"), ("size", "9")])?;
    let web = cx.pod("web").inline("settings", config_map("settings"), "/settings").start().await?;
    let inside = web.container().await?;
    let volume = cx.place("settings", &web)?;
    std::fs::rename(volume.join("color"), volume.join("colour"))?;
    web.sync().await?;
    cx.forget().await?;
    inside
        .sees(expect![[r#"
            /settings                dir  0777 0:0  ro
              ..data                 link  -> ..generation_000001
              ..generation_000001    dir  0755 0:0
                color                file  0644 0:0  "blue"
                size                 file  0644 0:0  "9"
              color                  link  -> ..data/color
              colour                 link  -> ..data/color
              size                   link  -> ..data/size
        "#]])
        .await?;
    web.stop().await
}

/// A half-made link and a half-made generation that a crash left behind do not keep the files from being replaced.
///
/// Kubernetes, ConfigMap: mounted ConfigMaps are updated automatically.
#[case(needs = [])]
async fn leftovers_of_a_crash_are_replaced(cx: &mut Cx) -> Result {
    cx.config_map("settings", &[("color", "blue")])?;
    let web = cx.pod("web").inline("settings", config_map("settings"), "/settings").start().await?;
    let inside = web.container().await?;
    let volume = cx.place("settings", &web)?;
    std::fs::create_dir(volume.join("..generation_000002"))?;
    std::fs::write(volume.join("..generation_000002/color"), "re")?;
    std::os::unix::fs::symlink("..generation_000002", volume.join("..data_tmp"))?;

    cx.node().kill().await?;
    cx.config_map("settings", &[("color", "red")])?;
    cx.node().start().await?;
    web.runs().await?;
    cx.forget().await?;
    inside.reads("/settings/color", "red").await?;
    cx.config_map("settings", &[("color", "green")])?;
    web.sync().await?;
    cx.forget().await?;
    inside
        .sees(expect![[r#"
            /settings                dir  0777 0:0  ro
              ..data                 link  -> ..generation_000004
              ..generation_000002    dir  0755 0:0
                color                file  0644 0:0  "re"
              ..generation_000004    dir  0755 0:0
                color                file  0644 0:0  "green"
              color                  link  -> ..data/color
        "#]])
        .await?;
    web.stop().await
}

/// The files of a pod that is deleted while they are about to be replaced are removed and do not come back: each
/// directory is made once and removed once.
///
/// Kubernetes, Pod Lifecycle: the volumes of a deleted pod are removed.
#[case(needs = [])]
async fn deleted_pod_stays_removed(cx: &mut Cx) -> Result {
    let keys: Vec<String> = (0..50).map(|key| format!("key-{key}")).collect();
    let large = "x".repeat(1000);
    for round in 0..4 {
        let write = |text: &str| {
            let data: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), text)).collect();
            cx.config_map("settings", &data)
        };
        write("before")?;
        let web = cx.pod(&format!("web-{round}"));
        let web = web.inline("settings", config_map("settings"), "/settings").start().await?;
        let volume = cx.place("settings", &web)?;
        write(&large)?;
        web.sync().await?;
        web.stop().await?;
        cx.same("whether the directory is there", &volume.exists().to_string(), "false")?;
    }
    cx.sees(expect![[r#"
        mkdir  <web-0>/settings
        rmdir  <web-0>/settings
        mkdir  <web-1>/settings
        rmdir  <web-1>/settings
        mkdir  <web-2>/settings
        rmdir  <web-2>/settings
        mkdir  <web-3>/settings
        rmdir  <web-3>/settings
    "#]])
        .await
}
