//! The target `region` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tests_fuzz::run("region", bytes));
