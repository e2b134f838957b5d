//! Numbers for Prometheus, in its text format, at an address of the machine or a Unix socket.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contracts::event::{Event, TraceLine};
use contracts::promise;
use contracts::rule::Violation;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

/// The address of the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("a path follows `unix:`".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None if text.contains(':') => Ok(Self::Tcp(text.to_owned())),
            None => Err("an address is HOST:PORT, :PORT or unix:PATH".to_owned()),
        }
    }
}

/// The upper bounds of the time that calls took, in seconds.
const BOUNDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// The most names of calls that are counted separately: callers choose the names.
const NAMES: usize = 64;

/// The time for a reader to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most that a reader may say.
const REQUEST: usize = 8 << 10;

/// The counters. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics(Arc<Mutex<Counters>>);

#[derive(Debug, Default)]
struct Counters {
    driver: String,
    calls: BTreeMap<String, Calls>,
    answers: BTreeMap<(String, String), u64>,
    findings: BTreeMap<&'static str, u64>,
    under_way: i64,
}

#[derive(Debug, Default)]
struct Calls {
    /// By the bounds; one more is in none.
    within: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl Metrics {
    pub(crate) fn of(driver: &str) -> Self {
        Self(Arc::new(Mutex::new(Counters { driver: driver.to_owned(), ..Counters::default() })))
    }

    /// Counts what has happened.
    pub(crate) fn count(&self, line: &TraceLine) {
        let mut counters = self.counters();
        match &line.event {
            Event::RpcStart(_) => counters.under_way += 1,
            Event::RpcEnd(end) => {
                counters.under_way -= 1;
                let is_known = counters.calls.len() < NAMES || counters.calls.contains_key(&end.method);
                let method = if is_known { end.method.clone() } else { "other".to_owned() };
                let calls = counters.calls.entry(method.clone()).or_default();
                let seconds = end.dur_ms / 1e3;
                let within = calls.within.iter_mut().zip(BOUNDS).filter(|(_, bound)| seconds <= *bound);
                within.for_each(|(count, _)| *count += 1);
                calls.count += 1;
                calls.seconds += seconds;
                *counters.answers.entry((method, end.code.clone())).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Counts a broken promise.
    pub(crate) fn broken(&self, violation: &Violation) {
        *self.counters().findings.entry(violation.contract).or_default() += 1;
    }

    /// Serves them for ever.
    pub(crate) async fn serve(self, address: &Address) -> io::Result<()> {
        match address {
            Address::Tcp(address) => {
                let address =
                    if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.clone() };
                let listener = TcpListener::bind(address).await?;
                tokio::spawn(async move {
                    loop {
                        match listener.accept().await {
                            Ok((stream, _)) => drop(tokio::spawn(self.clone().answer(stream))),
                            Err(_) => tokio::time::sleep(PATIENCE).await,
                        }
                    }
                });
            }
            Address::Unix(path) => {
                if harness::proxy::is_abandoned(path) {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                tokio::spawn(async move {
                    loop {
                        match listener.accept().await {
                            Ok((stream, _)) => drop(tokio::spawn(self.clone().answer(stream))),
                            Err(_) => tokio::time::sleep(PATIENCE).await,
                        }
                    }
                });
            }
        }
        Ok(())
    }

    /// Answers any request with the metrics.
    async fn answer(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut request = Vec::new();
        let whole = async {
            let mut part = [0; 1024];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST {
                match stream.read(&mut part).await {
                    Ok(0) | Err(_) => return,
                    Ok(length) => request.extend_from_slice(&part[..length]),
                }
            }
        };
        if tokio::time::timeout(PATIENCE, whole).await.is_err() {
            return;
        }
        let body = self.text();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        // A reader that has gone needs no answer.
        let _ = stream.write_all((head + &body).as_bytes()).await;
    }

    fn text(&self) -> String {
        let counters = self.counters();
        let driver = escaped(&counters.driver);
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(text, "# HELP volproof_{name} {help}\n# TYPE volproof_{name} {kind}");
        };
        head(&mut text, "answers_total", "counter", "Answers of the driver, by call and code.");
        for ((method, code), count) in &counters.answers {
            let labels =
                format!("driver=\"{driver}\",method=\"{}\",code=\"{}\"", escaped(method), escaped(code));
            let _ = writeln!(text, "volproof_answers_total{{{labels}}} {count}");
        }
        head(&mut text, "call_seconds", "histogram", "Time from a call to its answer.");
        for (method, calls) in &counters.calls {
            let labels = format!("driver=\"{driver}\",method=\"{}\"", escaped(method));
            for (bound, count) in BOUNDS.iter().zip(calls.within) {
                let _ = writeln!(text, "volproof_call_seconds_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            let Calls { count, seconds, .. } = calls;
            let _ = writeln!(text, "volproof_call_seconds_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(text, "volproof_call_seconds_sum{{{labels}}} {seconds}");
            let _ = writeln!(text, "volproof_call_seconds_count{{{labels}}} {count}");
        }
        head(&mut text, "calls_under_way", "gauge", "Calls without an answer yet.");
        let _ = writeln!(text, "volproof_calls_under_way{{driver=\"{driver}\"}} {}", counters.under_way);
        head(&mut text, "findings_total", "counter", "Broken promises, by promise and how far it binds.");
        for (contract, count) in &counters.findings {
            let strength =
                promise::find(contract).map_or("MUST".to_owned(), |promise| promise.strength.to_string());
            let labels = format!("driver=\"{driver}\",promise=\"{contract}\",strength=\"{strength}\"");
            let _ = writeln!(text, "volproof_findings_total{{{labels}}} {count}");
        }
        text
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        // Numbers are changed whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use contracts::event::RpcEnd;

    use super::*;

    fn end(method: &str, dur_ms: f64) -> TraceLine {
        let end = RpcEnd {
            id: 1,
            method: method.to_owned(),
            code: "OK".to_owned(),
            message: String::new(),
            dur_ms,
            resp: serde_json::Value::Null,
            injected: None,
            abandoned: false,
            unreadable: None,
        };
        TraceLine { seq: 1, t_ms: 0.0, event: Event::RpcEnd(end) }
    }

    #[test]
    fn calls_are_counted_by_name_and_time() {
        let metrics = Metrics::of("a\"b");
        metrics.count(&end("NodeStageVolume", 20.0));
        metrics.count(&end("NodeStageVolume", 700.0));
        let text = metrics.text();
        for line in [
            r#"volproof_answers_total{driver="a\"b",method="NodeStageVolume",code="OK"} 2"#,
            r#"volproof_call_seconds_bucket{driver="a\"b",method="NodeStageVolume",le="0.025"} 1"#,
            r#"volproof_call_seconds_bucket{driver="a\"b",method="NodeStageVolume",le="+Inf"} 2"#,
            r#"volproof_call_seconds_sum{driver="a\"b",method="NodeStageVolume"} 0.72"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn callers_cannot_make_it_grow() {
        let metrics = Metrics::of("d");
        (0..1000).for_each(|number| metrics.count(&end(&format!("Call{number}"), 1.0)));
        assert!(metrics.text().lines().count() < 1000);
        assert!(metrics.text().contains("method=\"other\",code=\"OK\"} 936"));
    }

    #[test]
    fn address_is_a_port_or_a_path() {
        assert_eq!("unix:/x".parse(), Ok(Address::Unix("/x".into())));
        assert_eq!(":9000".parse(), Ok(Address::Tcp(":9000".to_owned())));
        assert!("9000".parse::<Address>().is_err());
    }
}
