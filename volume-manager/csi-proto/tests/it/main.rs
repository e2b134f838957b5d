//! The contracts as the others see them: names and numbers on the wire, and calls converted to JSON.

mod json;
mod wire;
