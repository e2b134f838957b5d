//! Faults of the fake host: fail, fail afterwards, delay, hang.

use std::path::Path;
use std::time::Duration;

use host::fake::{FakeHost, Order, Rule};
use host::{Host, MountSpec, errno};
use tokio::time::{Instant, timeout};

async fn host() -> FakeHost {
    let host = FakeHost::default();
    host.make_dir_all(Path::new("/run/a/b"), 0o755).await.unwrap();
    host
}

fn tmpfs(target: &str) -> MountSpec {
    MountSpec::new("tmpfs", target, "tmpfs")
}

#[tokio::test(start_paused = true)]
async fn fail_has_no_effect_and_fail_after_fails_after_the_effect() {
    let host = host().await;
    host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("mount").times(1));
    host.faults().add(Rule::new(Order::FailAfter(errno::EIO)).on("mount").times(1));
    assert_eq!(host.mount(&tmpfs("/run/a")).await.unwrap_err().errno(), Some(errno::EIO));
    assert!(!host.kernel().is_mount_point(Path::new("/run/a")));
    assert_eq!(host.mount(&tmpfs("/run/a")).await.unwrap_err().errno(), Some(errno::EIO));
    assert!(host.kernel().is_mount_point(Path::new("/run/a")));
    host.mount(&tmpfs("/run/a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn delay_waits_on_tokios_clock() {
    let host = host().await;
    host.faults().add(Rule::new(Order::Delay(Duration::from_secs(90))).on("mount"));
    let began = Instant::now();
    host.mount(&tmpfs("/run/a")).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn hang_has_no_effect_and_hang_after_hangs_after_the_effect() {
    let host = host().await;
    host.faults().add(Rule::new(Order::Hang).on("mount").times(1));
    host.faults().add(Rule::new(Order::HangAfter).on("unmount").times(1));
    let hour = Duration::from_secs(3600);
    assert!(timeout(hour, host.mount(&tmpfs("/run/a"))).await.is_err());
    assert!(!host.kernel().is_mount_point(Path::new("/run/a")));
    host.mount(&tmpfs("/run/a")).await.unwrap();
    assert!(timeout(hour, host.unmount(Path::new("/run/a"))).await.is_err());
    assert!(!host.kernel().is_mount_point(Path::new("/run/a")), "hang after: the unmount had its effect");
}

#[tokio::test(start_paused = true)]
async fn rule_matches_by_method_path_and_count() {
    let host = host().await;
    let fail = || Rule::new(Order::Fail(errno::EIO));
    host.faults().add(fail().below("/run/a/b").after(1).times(2));
    let stat = async |path: &'static str| host.metadata(Path::new(path)).await.is_ok();
    assert!(stat("/run/a").await);
    assert_eq!(
        [stat("/run/a/b").await, stat("/run/a/b").await, stat("/run/a/b").await, stat("/run/a/b").await],
        [true, false, false, true]
    );
    host.faults().add(fail());
    assert!(!stat("/run/a").await);
    host.faults().clear();
    assert!(stat("/run/a").await);
}

#[tokio::test(start_paused = true)]
async fn callback_decides_steps_that_match_no_rule() {
    let host = host().await;
    let mut steps = Vec::new();
    host.faults().decide_with(move |step| {
        steps.push(step.method);
        if steps.len() % 2 == 0 { Order::Fail(errno::EIO) } else { Order::Yield }
    });
    let path = Path::new("/run/a");
    assert!(host.metadata(path).await.is_ok());
    assert!(host.metadata(path).await.is_err());
    assert!(host.read_dir(path).await.is_ok());
}
