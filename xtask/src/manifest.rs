//! Manifest compilation.
