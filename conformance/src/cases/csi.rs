//! Volumes of a CSI driver.

mod block;
mod lifecycle;
mod publish;
mod recovery;
mod sharing;
mod staging;
