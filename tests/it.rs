//! Tests of the program as a whole, on the real kernel.

mod bench;
mod browser;
mod calls;
mod check;
mod foreign;
mod golden;
mod invariants;
mod killed_node;
mod mechanisms;
mod package;
mod registry;
mod rerun;
mod sabotage;
mod secrets;
mod shared_driver;
mod since;
mod site;
mod tutorial;
mod unusual;
mod userns;
