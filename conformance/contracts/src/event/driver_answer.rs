//! The driver's answers to calls of the node, the cluster and the cases.

use serde_json::Value;

use super::Event;

/// An answer that the driver gave, and not the proxy.
#[derive(Debug, Clone, Copy)]
pub struct DriverAnswer<'a> {
    /// Whether a case has made the call itself; its calls and the others are counted apart.
    pub to_case: bool,
    /// The number of the call.
    pub id: u64,
    /// The bare method name.
    pub method: &'a str,
    /// The gRPC code in Go's spelling.
    pub code: &'a str,
    /// The driver's message, if the code is not `OK`.
    pub message: &'a str,
    /// The answer as JSON; null unless the code is `OK`.
    pub resp: &'a Value,
}

impl<'a> DriverAnswer<'a> {
    /// The answer that ends a call, unless the proxy gave it instead of the driver or no client could read it.
    pub fn by(event: &'a Event) -> Option<Self> {
        match event {
            Event::RpcEnd(end) if end.is_from_the_driver() => Some(Self {
                to_case: false,
                id: end.id,
                method: &end.method,
                code: &end.code,
                message: &end.message,
                resp: &end.resp,
            }),
            Event::DirectCall(call) => call.answer.as_ref().map(|answer| Self {
                to_case: true,
                id: call.id,
                method: &answer.method,
                code: &answer.code,
                message: &answer.message,
                resp: &answer.resp,
            }),
            _ => None,
        }
    }

    /// Whether the call has succeeded.
    pub fn is_ok(&self) -> bool {
        self.code == "OK"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(event: Value) -> Option<String> {
        let event: Event = serde_json::from_value(event).expect("an event");
        DriverAnswer::by(&event).map(|answer| format!("{} {}", answer.method, answer.code))
    }

    #[test]
    fn answers_of_the_proxy_are_not_the_drivers() {
        let end =
            json!({"ev": "rpc_end", "id": 1, "method": "NodeStageVolume", "code": "Internal", "dur_ms": 1});
        assert_eq!(code(end.clone()).as_deref(), Some("NodeStageVolume Internal"));
        let mut injected = end.clone();
        injected["injected"] = json!("code=Internal hang=false");
        assert_eq!(code(injected), None);
        let answer = json!({"method": "CreateVolume", "code": "OK", "resp": {}});
        let mut call = json!({"ev": "direct_call", "id": 1, "edge": "end", "volume": "", "paths": []});
        assert_eq!(code(call.clone()), None);
        call["answer"] = answer;
        assert_eq!(code(call).as_deref(), Some("CreateVolume OK"));
    }
}
