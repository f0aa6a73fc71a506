#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code, reason = "one of its functions is this target")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::index(data));
