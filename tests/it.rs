//! Tests of the program as a whole, on the real kernel.

mod check;
mod contained;
mod environment;
mod foreign;
mod golden;
mod hostile;
mod interrupt;
mod keep;
mod killed_node;
mod leaks;
mod mechanisms;
mod package;
mod play;
mod preparation;
mod promises;
mod registry;
mod rerun;
mod rooted;
mod sabotage;
mod secrets;
mod shared_driver;
mod since;
mod tutorial;
mod unusual;
mod userns;
mod watch;
