//! Volumes of a CSI driver.

mod block;
mod calls;
mod capacity;
mod copies;
mod flags;
mod group;
mod groups;
mod growth;
mod inline;
mod lifecycle;
mod modify;
mod nodes;
mod order;
mod process;
mod publish;
mod races;
mod recovery;
mod sharing;
mod snapshots;
mod staging;
mod stats;
