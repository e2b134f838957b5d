//! Volumes of a CSI driver.

mod block;
mod calls;
mod group;
mod inline;
mod lifecycle;
mod publish;
mod recovery;
mod sharing;
mod staging;
