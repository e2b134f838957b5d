//! Calls that a driver puts off, and that its caller makes again.

use std::error::Error as _;
use std::time::Duration;

use contracts::event::NOT_NOW;
use tonic::Status;

use super::unreadable::is_unreachable;
use super::{code_name, is_unanswered, unreadable};

const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Whether the driver itself says that a call cannot be done now, so that its caller must make it again: the code is
/// UNAVAILABLE or DEADLINE_EXCEEDED, and neither the connection nor a clock of ours has failed.
pub fn is_not_now(status: &Status) -> bool {
    NOT_NOW.contains(&code_name(status.code()))
        && status.source().is_none()
        && unreadable(status).is_none()
        && !is_unanswered(status)
        && !is_unreachable(status)
}

/// Makes a call, and again after a growing pause for as long as its answer asks for that.
pub async fn repeated<T>(call: impl AsyncFn() -> T, mut asks_again: impl FnMut(&T) -> bool) -> T {
    let mut pause = FIRST_PAUSE;
    loop {
        let answer = call().await;
        if !asks_again(&answer) {
            return answer;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use contracts::event::Unreadable;

    use super::super::no_answer;
    use super::super::unreadable::{status, unreachable};
    use super::*;

    #[test]
    fn only_the_driver_itself_asks_for_another_try() {
        assert!(is_not_now(&Status::unavailable("the backend restarts")));
        assert!(is_not_now(&Status::deadline_exceeded("the backend is slow")));
        assert!(!is_not_now(&Status::aborted("an operation is pending")));
        assert!(!is_not_now(&Status::internal("the disk is gone")));
        assert!(!is_not_now(&no_answer()));
        assert!(!is_not_now(&status(Unreadable::NoHttp, "x")));
        let mut lost = Status::unavailable("the connection is lost");
        lost.set_source(std::sync::Arc::new(std::io::Error::other("broken pipe")));
        assert!(!is_not_now(&lost));
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert!(!is_not_now(&unreachable("/csi.sock".as_ref(), &gone)));
    }
}
