//! The boot archive.
