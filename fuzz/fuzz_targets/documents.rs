#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay::fuzz::run("documents", bytes));
