//! How long each step took: kept in `target/xtask/times.json`, with the times of the run before.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// A step that takes this many times as long as in the run before is reported.
const SLOWER: f64 = 2.0;

/// Shorter steps double by chance.
const WORTH_TELLING: f64 = 10.0;

/// Clock ticks a second in `/proc/self/stat`: the same on every Linux that volproof runs on.
const TICKS: f64 = 100.0;

/// The duration of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    /// Processor time of all processes that were waited for, also by a step beside this one. On a machine that does other work as well it distinguishes
    /// a slow step from a slow hour.
    pub(crate) cpu_seconds: f64,
}

#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    cpu_before: f64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { began: Instant::now(), cpu_before: cpu_of_children() }
    }

    pub(crate) fn stop(self) -> Took {
        Took { seconds: self.began.elapsed().as_secs_f64(), cpu_seconds: cpu_of_children() - self.cpu_before }
    }
}

fn cpu_of_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks_of_children(&stat) / TICKS
}

/// `cutime` and `cstime`: the program's name, which comes before, may hold blanks and parentheses.
fn ticks_of_children(stat: &str) -> f64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}

/// The times of one command's steps, and those of the run before.
#[derive(Debug)]
pub(crate) struct Times {
    path: PathBuf,
    command: String,
    before: Map<String, Value>,
    steps: Map<String, Value>,
}

impl Times {
    pub(crate) fn of(command: &str, target: &Path) -> Times {
        let path = target.join("xtask/times.json");
        let before = read(&path)[command]["steps"].as_object().cloned().unwrap_or_default();
        Times { path, command: command.to_owned(), before, steps: Map::new() }
    }

    /// Notes a step; a sentence if it has become much slower.
    pub(crate) fn record(&mut self, step: &str, took: Took) -> Option<String> {
        let round = |seconds: f64| (seconds * 10.0).round() / 10.0;
        let noted = json!({ "seconds": round(took.seconds), "cpu_seconds": round(took.cpu_seconds) });
        self.steps.insert(step.to_owned(), noted);
        let before = self.before.get(step)?;
        let (seconds, cpu) = (before["seconds"].as_f64()?, before["cpu_seconds"].as_f64()?);
        (took.seconds >= WORTH_TELLING && took.seconds >= SLOWER * seconds).then(|| {
            format!(
                "{step} took {:.0} s ({:.0} s of processor time), and {seconds:.0} s ({cpu:.0} s) in the run before",
                took.seconds, took.cpu_seconds
            )
        })
    }

    /// Writes the file; the times of other commands stay.
    pub(crate) fn write(&self) -> Result<()> {
        let mut all = read(&self.path);
        all[&self.command] = json!({ "steps": self.steps, "before": self.before });
        let failed = || format!("cannot write `{}`", self.path.display());
        fs::create_dir_all(self.path.parent().expect("the file is in a directory")).with_context(failed)?;
        fs::write(&self.path, format!("{all:#}\n")).with_context(failed)
    }
}

/// A file that is missing or damaged holds no times.
fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(seconds: f64) -> Took {
        Took { seconds, cpu_seconds: seconds / 2.0 }
    }

    #[test]
    fn step_that_doubles_is_reported_and_the_earlier_run_is_kept() {
        let target = std::env::temp_dir().join(format!("xtask-times-{}", std::process::id()));
        let mut first = Times::of("test", &target);
        assert_eq!(first.record("build", took(20.0)), None);
        first.write().expect("the times can be written");

        let mut second = Times::of("test", &target);
        assert_eq!(second.record("build", took(39.0)), None);
        let message = second.record("build", took(40.0));
        assert_eq!(
            message.as_deref(),
            Some("build took 40 s (20 s of processor time), and 20 s (10 s) in the run before")
        );
        assert_eq!(second.record("new", took(99.0)), None);
        second.write().expect("the times can be written");
        let mut other = Times::of("ci check", &target);
        assert_eq!(other.record("build", took(99.0)), None);
        other.write().expect("the times can be written");

        let kept = read(&target.join("xtask/times.json"));
        fs::remove_dir_all(&target).expect("the directory can be removed");
        assert_eq!(kept["test"]["steps"]["build"]["seconds"], 40.0);
        assert_eq!(kept["test"]["before"]["build"]["seconds"], 20.0);
        assert_eq!(kept["ci check"]["steps"]["build"]["seconds"], 99.0);
    }

    #[test]
    fn short_step_may_double() {
        let mut times = Times {
            path: PathBuf::new(),
            command: "test".into(),
            before: Map::from_iter([("tidy".to_owned(), json!({"seconds": 1.0, "cpu_seconds": 1.0}))]),
            steps: Map::new(),
        };
        assert_eq!(times.record("tidy", took(9.0)), None);
    }

    #[test]
    fn processor_time_is_that_of_children() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 1000 2000 150 50 20 0 1";
        assert!((ticks_of_children(stat) - 200.0).abs() < f64::EPSILON);
    }
}
