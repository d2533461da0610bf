//! `wake WHAT NAME`: measures and prints one line for `cargo xtask bench --wake`.

use std::process::ExitCode;

use device_model::measure::{What, measure, report};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let what = words.first().and_then(|word| What::from_name(word));
    let (Some(what), Some(name)) = (what, words.get(1)) else {
        eprintln!("usage: wake line|request|native-line|native-uio NAME");
        return ExitCode::FAILURE;
    };
    match measure(what) {
        Ok(mut samples) => {
            println!("{}", report(name, &mut samples));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("wake: {error}");
            ExitCode::FAILURE
        }
    }
}
