//! Workloads that Debian has no package for, written after their descriptions: none of them is the
//! program whose name it has, and none of their figures can be compared with that program's.
//!
//! Each does a number of operations that is given, in two threads, since the VMs have two vCPUs. The
//! figure of a kernel is a count of instructions, so that no clock is read here.

pub mod kernels;
