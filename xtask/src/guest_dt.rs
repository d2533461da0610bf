//! Guest device trees.
