//! The names for each file of cases: `use crate::prelude::*;`.

pub(crate) use expect_test::expect;
pub(crate) use macros::case;
pub(crate) use serde_json::json;
pub(crate) use testbed::prelude::*;
