//! Workloads that Debian has no package for, written after their descriptions: none of them is the
//! program whose name it has, and none of their figures can be compared with that program's.
//!
//! Each does a number of operations that is given; kernels do it in two threads, since the VMs have
//! two vCPUs. All figures are counts of instructions, so that no clock is read here.

pub mod kernels;
pub mod network;
pub mod sources;
