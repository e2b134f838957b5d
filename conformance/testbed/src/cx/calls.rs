//! Calls that a case itself makes to the driver, and checks of the answers against promises.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use contracts::promise::{self, Strength};
use harness::manifest::UnknownIds;
use serde_json::{Value, json};

use super::{Claims, Cx, Ignored, Shared, Volume};
use crate::failure::{Failure, Place, Result, What, place, words};

/// A driver's answer to a call of the case.
pub struct Answer {
    shared: Rc<Shared>,
    method: String,
    /// The special part of the request, for sentences about the answer.
    asked: &'static str,
    /// In Go's spelling.
    code: &'static str,
    message: String,
    said: Value,
}

impl Cx {
    /// Calls the driver past the node and all rules about it. The request is JSON; secrets are added to it as the
    /// manifest has them.
    #[track_caller]
    pub fn call(&self, method: &str, request: Value) -> impl Future<Output = Result<Answer>> + use<> {
        let at = Location::caller();
        let doing = self.shared().begin(&call_of(method), at);
        self.shared().called.borrow_mut().insert(method.to_owned());
        let (shared, method) = (self.shared(), method.to_owned());
        async move {
            let answer = doing.done(shared.bed.call(&method, request).await)?;
            if let Some(defect) = answer.as_ref().err().and_then(harness::proxy::unreadable) {
                let cause = Some(defect.cause().to_owned());
                shared.claims("DRV-009", defect.of(&method), cause, place(at))?;
            }
            let (code, message, said) = match answer {
                Ok(said) => ("OK", String::new(), said),
                Err(status) => (harness::proxy::code_name(status.code()), words(&status), Value::Null),
            };
            Ok(Answer { shared, method, asked: "", code, message, said })
        }
    }

    /// The last request of a method, from the node or from a controller.
    #[track_caller]
    pub fn last_request(&self, method: &str) -> Result<Value> {
        let doing = self.shared().begin(&format!("looking at {method}"), Location::caller());
        doing.done(self.shared().bed.last_request(method))
    }

    /// The driver's last answer to a method that the node or a controller called.
    #[track_caller]
    pub fn last_answer(&self, method: &str) -> Result<Value> {
        let doing = self.shared().begin(&format!("looking at the answer to {method}"), Location::caller());
        doing.done(self.shared().bed.last_answer(method))
    }

    /// Waits until the node or the cluster has called a method, and checks that the driver's answer is OK.
    #[track_caller]
    pub fn is_answered(&self, method: &str) -> impl Future<Output = Result> {
        let doing = self.shared().begin(&format!("waiting for {method}"), Location::caller());
        async move { doing.done(self.shared().bed.is_answered(method).await) }
    }

    /// Whether the driver attaches volumes, so that its controller can know which node uses one.
    pub fn driver_attaches(&self) -> bool {
        self.shared().bed.attaches()
    }

    /// The id of a node that does not exist, and the codes that are right for it.
    pub fn unknown_node(&self) -> (String, &'static [&'static str]) {
        let ids = self.shared().bed.unknown_ids();
        let codes = unknown_id_codes(ids.node == UnknownIds::default().node);
        (ids.node, codes)
    }

    /// The id of a volume that does not exist, and the codes that are right for it.
    pub fn unknown_volume(&self) -> (String, &'static [&'static str]) {
        let ids = self.shared().bed.unknown_ids();
        let codes = unknown_id_codes(ids.volume == UnknownIds::default().volume);
        (ids.volume, codes)
    }

    /// Notes that a promise could not be tried, and why.
    pub fn not_tried(&self, promise: &str, why: &str) {
        self.shared().claims.borrow_mut().not_tried.push(format!("{promise}: {why}"));
    }

    /// The calls of this driver whose requests may not be empty.
    pub fn calls_that_need_a_field(&self) -> Vec<&'static str> {
        self.shared().bed.calls_that_need_a_field()
    }

    /// Checks that a call is refused when each of these fields is left out of a good request, one at a time.
    #[track_caller]
    pub fn requires(
        &self,
        method: &'static str,
        request: &Value,
        fields: &'static [&'static str],
    ) -> impl Future<Output = Result> + use<> {
        let (cx, request, at) = (Cx { shared: self.shared() }, request.clone(), Location::caller());
        async move {
            let wrong = cx.answers_without(method, &request, fields, |answer| !answer.is_invalid()).await?;
            let broken = wrong.map(|wrong| format!("{wrong}, and not InvalidArgument."));
            cx.shared.claims("DRV-090", method, broken, place(at))
        }
    }

    /// The answers to a request without each of these fields, one at a time, that are wrong: `NodeStageVolume without
    /// `volumeId` answered OK`. The fields may be nested: `volumeCapability/accessMode`.
    pub async fn answers_without(
        &self,
        method: &'static str,
        request: &Value,
        fields: &'static [&'static str],
        is_wrong: impl Fn(&Answer) -> bool,
    ) -> Result<Option<String>> {
        let mut wrong = Vec::new();
        for field in fields {
            let answer = self.take(method, without(request.clone(), field)).await?;
            self.delete_created(&answer).await?;
            if method == "NodePublishVolume" && answer.is_ok() {
                // The next request publishes in another way: a caller undoes this one first.
                let undo = json!({ "volumeId": request["volumeId"], "targetPath": request["targetPath"] });
                drop(self.call("NodeUnpublishVolume", undo).await?);
            }
            if is_wrong(&answer) {
                wrong.push(format!("without `{}` answered {}", field.replace('/', "."), answer.code()));
            }
        }
        Ok((!wrong.is_empty()).then(|| format!("{method} {}", wrong.join(", "))))
    }

    /// Deletes the volume that a CreateVolume has created, if it has created one.
    pub async fn delete_created(&self, answer: &Answer) -> Result {
        let made = answer.text("/volume/volumeId").to_owned();
        if answer.method() == "CreateVolume" && answer.is_ok() {
            drop(self.call("DeleteVolume", json!({ "volumeId": made })).await?);
        }
        Ok(())
    }

    /// Adds a made-up secret to each later call of the case.
    pub fn adds_a_secret_to_each_call(&self) {
        self.shared().bed.add_secret_to_each_call();
    }

    /// The driver's own name for a volume.
    pub fn handle(&self, volume: &Volume) -> String {
        self.shared().bed.handle(&volume.name)
    }

    /// The capacity of a volume's persistent volume.
    pub fn size(&self, volume: &Volume) -> u64 {
        self.shared().bed.size(&volume.name)
    }

    /// Checks that a promise is kept, and notes it. A broken MUST fails the case; a broken recommendation is only noted.
    #[track_caller]
    pub fn keeps(&self, promise: &'static str, method: &str, kept: bool, cause: &str) -> Result {
        let cause = (!kept).then(|| cause.to_owned());
        self.shared().claims(promise, method, cause, place(Location::caller()))
    }

    /// Checks an expectation that has no numbered promise.
    #[track_caller]
    pub fn finds(&self, is_so: bool, otherwise: &str) -> Result {
        if is_so {
            return Ok(());
        }
        let what = What::Broken { chain: vec![otherwise.to_owned()], seen: None };
        Err(Failure { after: String::new(), at: place(Location::caller()), what: what.into() })
    }
}

impl Shared {
    /// The case's findings about promises so far.
    pub fn claimed(&self) -> Claims {
        let not_undone = self.bed.made.not_undone.borrow().clone();
        Claims { not_undone, ..self.claims.borrow().clone() }
    }

    pub(super) fn claims(
        &self,
        contract: &'static str,
        method: &str,
        broken: Option<String>,
        at: Place,
    ) -> Result {
        let strength = promise::find(contract).map_or(Strength::Must, |promise| promise.strength);
        let mut claims = self.claims.borrow_mut();
        let after = step_of(&self.last.borrow().step, method, &self.called.borrow());
        let method = method.to_owned();
        match broken {
            None => {
                claims.kept.insert(contract);
                Ok(())
            }
            Some(cause) if strength == Strength::Must => {
                let what = What::Promise { contract, method, cause };
                Err(Failure { after, at, what: what.into() })
            }
            Some(cause) => {
                claims.ignored.push(Ignored { contract, method, cause, strength });
                Ok(())
            }
        }
    }
}

/// The step that a broken promise is shown after: the last one, but a call of another method shows nothing of this one.
/// Empty is the last.
fn step_of(last: &str, method: &str, called: &BTreeSet<String>) -> String {
    let is_another_call = last != call_of(method) && last.starts_with("cx.call(");
    if is_another_call && called.contains(method) { call_of(method) } else { String::new() }
}

fn call_of(method: &str) -> String {
    format!("cx.call(\"{method}\")")
}

/// A request without a field, which may be nested.
fn without(mut request: Value, field: &str) -> Value {
    let (parent, name) = field.rsplit_once('/').map_or(("", field), |(parent, name)| (parent, name));
    let pointer = if parent.is_empty() { String::new() } else { format!("/{parent}") };
    request.pointer_mut(&pointer).and_then(Value::as_object_mut).and_then(|fields| fields.remove(name));
    request
}

/// INVALID_ARGUMENT is allowed for a made-up id, which may not have the form of the driver's ids. An id from the manifest has
/// that form.
fn unknown_id_codes(is_made_up: bool) -> &'static [&'static str] {
    if is_made_up { &["NotFound", "InvalidArgument"] } else { &["NotFound"] }
}

impl Answer {
    /// The answer to a call that need not be made.
    pub(super) fn ok(shared: Rc<Shared>, method: &str) -> Self {
        let (method, message, said) = (method.to_owned(), String::new(), Value::Null);
        Self { shared, method, asked: "", code: "OK", message, said }
    }

    /// A part of the answer, by its JSON pointer.
    pub fn part(&self, part: &str) -> Value {
        self.said.pointer(part).cloned().unwrap_or(Value::Null)
    }

    /// Adds a description of the request for findings: "of a volume that is published".
    #[must_use]
    pub fn asked(self, asked: &'static str) -> Self {
        Self { asked, ..self }
    }

    /// Checks that the code is one of those that a promise allows.
    #[track_caller]
    pub fn is(&self, promise: &'static str, codes: &[&str]) -> Result {
        self.is_at(promise, codes, Location::caller())
    }

    /// The same for a line of the case.
    pub(super) fn is_at(
        &self,
        promise: &'static str,
        codes: &[&str],
        at: &'static Location<'static>,
    ) -> Result {
        self.shared.claims(promise, &self.method, self.other_than(codes), place(at))
    }

    /// Checks that the call was refused, with any code: the promise asks for no more.
    #[track_caller]
    pub fn is_refused(&self, promise: &'static str) -> Result {
        let broken =
            self.is_ok().then(|| format!("{} answered OK, and should have refused.", self.request()));
        self.shared.claims(promise, &self.method, broken, place(Location::caller()))
    }

    /// Checks that a call that CSI requires, always or by a reported capability, is implemented. Any other error is fine.
    #[track_caller]
    pub fn is_implemented(&self) -> Result {
        let Self { method, code, message, .. } = self;
        let broken = (*code == "Unimplemented").then(|| not_implemented(method, message));
        self.shared.claims("DRV-002", method, broken, place(Location::caller()))
    }

    /// Checks that the call was OK, without a numbered promise.
    #[track_caller]
    pub fn succeeds(&self) -> Result {
        let Some(cause) = self.other_than(&["OK"]) else { return Ok(()) };
        let what = What::Broken { chain: vec![cause], seen: None };
        Err(Failure { after: String::new(), at: place(Location::caller()), what: what.into() })
    }

    /// The code, in Go's spelling.
    pub fn code(&self) -> &str {
        self.code
    }

    /// Whether it is the code for a request that lacks something.
    pub fn is_invalid(&self) -> bool {
        self.code == "InvalidArgument"
    }

    /// Code and message, to recognise an answer that repeats an earlier one.
    pub fn words(&self) -> String {
        format!("{} {}", self.code, self.message).trim_end().to_owned()
    }

    pub fn method(&self) -> &str {
        &self.method
    }

    pub fn is_ok(&self) -> bool {
        self.code == "OK"
    }

    fn other_than(&self, codes: &[&str]) -> Option<String> {
        let (method, Self { code, message, .. }) = (self.request(), self);
        let why = if message.is_empty() { String::new() } else { format!(" ({message})") };
        (!codes.contains(code))
            .then(|| format!("{method} answered {code}{why}, and not {}.", codes.join(" or ")))
    }

    fn request(&self) -> String {
        format!("{} {}", self.method, self.asked).trim_end().to_owned()
    }

    /// A text of the answer, by its JSON pointer; empty if it is missing.
    pub fn text(&self, part: &str) -> &str {
        self.said.pointer(part).and_then(Value::as_str).unwrap_or_default()
    }

    /// A list of the answer, by its JSON pointer.
    pub fn list(&self, part: &str) -> &[Value] {
        self.said.pointer(part).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Whether a part was answered at all.
    pub fn has(&self, part: &str) -> bool {
        self.said.pointer(part).is_some()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, code, message, said, .. } = self;
        write!(f, "{method}: {code} {message} {said}")
    }
}

/// The cause of a required call that answers UNIMPLEMENTED.
fn not_implemented(method: &str, message: &str) -> String {
    match method {
        // No capability reports this call. The text is that of the rule, so that both make one finding.
        "ValidateVolumeCapabilities" => {
            "what each controller plugin has to implement is not implemented".into()
        }
        _ => format!("{method} answered Unimplemented ({message}), and its capability is reported."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_is_broken_after_a_call_of_its_method() {
        let called = ["NodePublishVolume", "NodeExpandVolume"].map(str::to_owned).into();
        let validate = call_of("ValidateVolumeCapabilities");
        assert_eq!(step_of(&validate, "NodePublishVolume", &called), "cx.call(\"NodePublishVolume\")");
        assert_eq!(step_of(&validate, "ValidateVolumeCapabilities", &called), "", "the last step");
        assert_eq!(
            step_of("web.stop()", "NodePublishVolume", &called),
            "",
            "the node may have called it again"
        );
        assert_eq!(step_of(&validate, "CreateVolume", &called), "", "not called by the case");
    }

    #[test]
    fn capability_is_blamed_only_where_there_is_one() {
        let validate = not_implemented("ValidateVolumeCapabilities", "no");
        assert_eq!(validate, "what each controller plugin has to implement is not implemented");
        assert!(not_implemented("NodeExpandVolume", "no").ends_with("and its capability is reported."));
    }
}
