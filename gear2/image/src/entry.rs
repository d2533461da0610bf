//! The header of the flat image and its first instructions.
//!
//! Gear1 enters with the CPU's index in X0 and SP at the top of the CPU's stack.

use gear1_abi::ABI_VERSION;
use gear1_abi::image::GEAR2_MAGIC;

// The header is that of `gear1_abi::image::ImageHeader`. A frame record of zeroes
// ends a walk along the frame pointers.
core::arch::global_asm!(
    ".pushsection .header, \"ax\"",
    ".quad {magic}",
    ".word {version}",
    ".word 0",
    ".quad gear2_base",
    ".quad gear2_entry",
    ".quad gear2_text_end",
    ".quad gear2_rodata_end",
    ".quad gear2_data_end",
    ".quad gear2_bss_end",
    ".quad 0",
    ".global gear2_entry",
    "gear2_entry:",
    "mov x29, xzr",
    "mov x30, xzr",
    "b {main}",
    ".popsection",
    magic = const GEAR2_MAGIC,
    version = const ABI_VERSION,
    main = sym crate::main,
);
