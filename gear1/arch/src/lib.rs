//! Placeholder replaced in this commit series.
#![no_std]
