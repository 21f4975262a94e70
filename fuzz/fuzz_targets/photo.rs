#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| crossfade_fuzz::images::photo(input));
