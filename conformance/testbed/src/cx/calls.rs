//! Calls that no node makes: a case asks the driver itself, and holds its answer against a promise.

use std::panic::Location;

use serde_json::Value;

use super::{Cx, Volume};
use crate::failure::{Failure, Place, Result, What, place};

/// What a driver has answered.
#[derive(Debug)]
pub struct Answer {
    method: String,
    /// In Go's spelling.
    code: &'static str,
    message: String,
    said: Value,
}

impl Cx {
    /// Calls the driver past the node and all rules about it. The request is JSON; secrets are added to it as the
    /// manifest has them.
    #[track_caller]
    pub fn call(&self, method: &str, request: Value) -> impl Future<Output = Result<Answer>> {
        let doing = self.shared().begin(&format!("cx.call(\"{method}\")"), Location::caller());
        let (shared, method) = (self.shared(), method.to_owned());
        async move {
            let answer = doing.done(shared.bed.call(&method, request).await)?;
            let (code, message, said) = match answer {
                Ok(said) => ("OK", String::new(), said),
                Err(status) => {
                    (harness::proxy::code_name(status.code()), status.message().to_owned(), Value::Null)
                }
            };
            Ok(Answer { method, code, message, said })
        }
    }

    /// The last request of a method that anybody has made through the node or the cluster.
    #[track_caller]
    pub fn last_request(&self, method: &str) -> Result<Value> {
        let doing = self.shared().begin(&format!("looking at {method}"), Location::caller());
        doing.done(self.shared().bed.last_request(method))
    }

    /// The calls that the driver has, of those whose requests may not be empty.
    pub fn calls_that_need_a_field(&self) -> Vec<&'static str> {
        self.shared().bed.calls_that_need_a_field()
    }

    /// The driver's own name for a volume.
    pub fn handle(&self, volume: &Volume) -> String {
        self.shared().bed.handle(&volume.name)
    }

    /// Finds that a promise is kept.
    #[track_caller]
    pub fn keeps(&self, promise: &'static str, method: &str, kept: bool, cause: &str) -> Result {
        let at = place(Location::caller());
        if kept { Ok(()) } else { Err(broken(promise, method, cause.to_owned(), at)) }
    }
}

impl Answer {
    /// Finds that the code is one of those that a promise allows.
    #[track_caller]
    pub fn is(&self, promise: &'static str, codes: &[&str]) -> Result {
        if codes.contains(&self.code) {
            return Ok(());
        }
        let Self { method, code, message, .. } = self;
        let why = if message.is_empty() { String::new() } else { format!(" ({message})") };
        let cause = format!("{method} answered {code}{why}, and not {}.", codes.join(" or "));
        Err(broken(promise, method, cause, place(Location::caller())))
    }

    /// Finds that the call was refused, in whatever words: all that a promise asks for.
    #[track_caller]
    pub fn is_refused(&self, promise: &'static str) -> Result {
        if self.code != "OK" {
            return Ok(());
        }
        let cause = format!("{} answered OK, and should have refused.", self.method);
        Err(broken(promise, &self.method, cause, place(Location::caller())))
    }

    /// A part of what was answered, by its JSON pointer; empty where it is left out.
    pub fn text(&self, part: &str) -> &str {
        self.said.pointer(part).and_then(Value::as_str).unwrap_or_default()
    }

    /// A list in what was answered.
    pub fn list(&self, part: &str) -> &[Value] {
        self.said.pointer(part).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Whether a part was answered at all.
    pub fn has(&self, part: &str) -> bool {
        self.said.pointer(part).is_some()
    }
}

fn broken(contract: &'static str, method: &str, cause: String, at: Place) -> Failure {
    let what = What::Promise { contract, method: method.to_owned(), cause };
    Failure { after: String::new(), at, what: what.into() }
}
