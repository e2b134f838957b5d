//! The answers of a driver about itself stay the same.

use std::time::{Duration, Instant};

use crate::prelude::*;

/// The lists of capabilities are the same however often they are asked for.
///
/// CSI, GetPluginCapabilities: the same capabilities for all instances of a version of the plugin.
#[case(driver = Shared)]
async fn abilities_stay_the_same(cx: &mut Cx) -> Result {
    let mut methods = vec!["GetPluginCapabilities", "NodeGetCapabilities"];
    methods.extend(cx.plugin_can("CONTROLLER_SERVICE").then_some("ControllerGetCapabilities"));
    methods.extend(cx.plugin_can("GROUP_CONTROLLER_SERVICE").then_some("GroupControllerGetCapabilities"));
    for method in methods {
        let mut lists = Vec::new();
        for _ in 0..4 {
            let answer = cx.call(method, json!({})).await?;
            answer.is("DRV-007", &["OK"])?;
            let mut list: Vec<String> =
                answer.list("/capabilities").iter().map(ToString::to_string).collect();
            list.sort();
            lists.push(list);
        }
        let cause = format!("{method} answered another list when it was asked again.");
        let is_same = lists.windows(2).all(|pair| pair[0] == pair[1]);
        cx.keeps("DRV-003", method, is_same, &cause)?;
    }
    Ok(())
}

/// The lists of capabilities are the same before there is a volume and after.
///
/// CSI, ControllerGetCapabilities, NodeGetCapabilities: all instances of the same version of the plugin SHALL return the
/// same set of capabilities.
#[case(needs = [Creates, Filesystem])]
async fn abilities_stay_when_there_are_volumes(cx: &mut Cx) -> Result {
    const METHODS: [&str; 2] = ["ControllerGetCapabilities", "NodeGetCapabilities"];
    let mut lists: Vec<Vec<String>> = Vec::new();
    for is_later in [false, true] {
        if is_later {
            cx.volume("data").create().await?;
        }
        for method in METHODS {
            let answer = cx.call(method, json!({})).await?;
            answer.succeeds()?;
            let mut list: Vec<String> =
                answer.list("/capabilities").iter().map(ToString::to_string).collect();
            list.sort();
            lists.push(list);
        }
    }
    for (at, method) in METHODS.iter().enumerate() {
        let cause = format!("{method} answered another list after a volume was created.");
        cx.keeps("DRV-003", method, lists[at] == lists[at + METHODS.len()], &cause)?;
    }
    Ok(())
}

/// A driver with volumes has the same capabilities after its restart.
///
/// CSI, GetPluginCapabilities: all instances of the same version SHALL return the same set of capabilities.
#[case(needs = [OwnProcess, Creates, Filesystem])]
async fn abilities_stay_over_a_restart(cx: &mut Cx) -> Result {
    cx.volume("data").create().await?;
    let methods = ["GetPluginCapabilities", "ControllerGetCapabilities", "NodeGetCapabilities"];
    let mut before = Vec::new();
    for method in methods {
        before.push(cx.call(method, json!({})).await?.part("/capabilities"));
    }
    cx.driver().restart().await?;
    for (method, before) in methods.iter().zip(before) {
        let after = cx.call(method, json!({})).await?.part("/capabilities");
        let cause = format!("{method} answers other capabilities after a restart.");
        cx.keeps("DRV-003", method, after == before, &cause)?;
    }
    Ok(())
}

/// A plugin that was ready stays so, however often it is asked.
///
/// CSI, Probe: "`READY = FALSE`" is for a plugin that is still initializing.
#[case(driver = Shared)]
async fn plugin_stays_ready(cx: &mut Cx) -> Result {
    const TIMES: usize = 200;
    /// Enough for all of them, unless each starts programs.
    const LONGEST: Duration = Duration::from_secs(20);
    let (begin, mut asked, mut unready) = (Instant::now(), 0, 0);
    while asked < TIMES && begin.elapsed() < LONGEST {
        asked += 1;
        let probe = cx.call("Probe", json!({})).await?;
        unready += usize::from(!probe.is_ok() || probe.part("/ready") == json!(false));
    }
    let cause = format!(
        "Of {asked} times Probe said {unready} times that the plugin is not ready, while it serves calls."
    );
    cx.keeps("DRV-004", "Probe", unready == 0, &cause)
}

/// The plugin is ready, and its name, the id of its node and the node's topology stay the same.
///
/// CSI, GetPluginInfo, NodeGetInfo, Probe: these calls MUST be implemented, and the id identifies the node.
#[case(driver = Shared)]
async fn plugin_and_node_stay_the_same(cx: &mut Cx) -> Result {
    let (mut plugins, mut nodes) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let probe = cx.call("Probe", json!({})).await?;
        probe.is("DRV-007", &["OK"])?;
        // A plugin that leaves out `ready` is ready.
        let is_ready = probe.part("/ready") != json!(false);
        let cause =
            "Probe answered that the plugin is not ready, after it had been and while it serves calls.";
        cx.keeps("DRV-004", "Probe", is_ready, cause)?;
        plugins.push(cx.call("GetPluginInfo", json!({})).await?.part("/name"));
        nodes.push(cx.call("NodeGetInfo", json!({})).await?);
    }
    let cause = "GetPluginInfo answered another name when it was asked again.";
    cx.keeps("DRV-001", "GetPluginInfo", plugins.windows(2).all(|pair| pair[0] == pair[1]), cause)?;
    let is_same = |part: &str| nodes.windows(2).all(|pair| pair[0].part(part) == pair[1].part(part));
    let cause = "NodeGetInfo answered another id when it was asked again.";
    cx.keeps("DRV-005", "NodeGetInfo", is_same("/nodeId"), cause)?;
    let cause = "NodeGetInfo answered another topology when it was asked again.";
    cx.finds(is_same("/accessibleTopology"), cause)
}
