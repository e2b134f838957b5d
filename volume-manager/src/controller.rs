//! The cluster-side roles that a node's volumes depend on. They know no node but through the API.

pub mod attach_detach;
