//! A small tree of C sources, for the workloads that unpack and compile one: a kernel's would take
//! an emulated machine hours.
//!
//! The files are made by a generator whose numbers are the same in each run, so that every place
//! has the same bytes. They need no header of a libc.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Number of source files, and of functions in each.
pub const FILES: usize = 64;
const FUNCTIONS: usize = 24;
/// What all files include.
const HEADER: &str = "\
#ifndef COMMON_H
#define COMMON_H
struct item { struct item *next; unsigned long key; int values[8]; const char *name; };
unsigned long mix(unsigned long a, unsigned long b);
int note(const char *name, int value);
#endif
";

/// Writes the tree into a directory, which is made.
///
/// # Errors
///
/// What the file system says.
pub fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("common.h"), HEADER)?;
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    (0..FILES).try_for_each(|file| {
        let text = source(file, &mut numbers);
        fs::write(directory.join(format!("part{file}.c")), text)
    })
}

/// Returns a source file. Its functions call those before them, so that a compiler has symbols to
/// look up.
fn source(file: usize, numbers: &mut Numbers) -> String {
    let mut text = format!("/* Part {file} of a generated tree. */\n#include \"common.h\"\n");
    for function in 0..FUNCTIONS {
        let name = format!("part{file}_{function}");
        let before = format!("part{file}_{}", function.saturating_sub(1));
        let call = if function > 0 { &before } else { "mix" };
        let body = match numbers.next() % 3 {
            0 => walk(numbers),
            1 => choose(numbers),
            _ => fill(numbers),
        };
        let factor = numbers.next() % 1000;
        // Text that cannot be formatted does not exist: writing to a String never fails.
        let _ = write!(
            text,
            "\n/* Number {function}: {factor} times what comes before it. */\n\
             unsigned long {name}(unsigned long a, unsigned long b)\n{{\n\
             \tunsigned long sum = {call}(a + {factor}, b);\n{body}\treturn sum;\n}}\n"
        );
    }
    text
}

/// A list's walk.
fn walk(numbers: &mut Numbers) -> String {
    let [key, index] = [numbers.next() % 4096, numbers.next() % 8];
    format!(
        "\tstruct item last = {{ 0, {key}, {{ 1, 2, 3 }}, \"last\" }}, first = {{ &last, a }}, *at;\n\
         \tfor (at = &first; at; at = at->next) {{\n\
         \t\tif (at->key > {key} && at->values[{index}] != (int)b)\n\
         \t\t\tsum += note(at->name ? at->name : \"none\", at->values[{index}]);\n\
         \t\telse\n\t\t\tsum ^= at->key << {index};\n\t}}\n"
    )
}

/// A switch.
fn choose(numbers: &mut Numbers) -> String {
    let mut text = "\tswitch (a & 15) {\n".to_owned();
    for case in 0..8 {
        let number = numbers.next() % 100_000;
        let _ = write!(
            text,
            "\tcase {case}:\n\t\tsum = mix(sum, b % {}) + note(\"{number:x}\", {case});\n\t\tbreak;\n",
            number + 1
        );
    }
    text + "\tdefault:\n\t\tsum -= b;\n\t}\n"
}

/// A table and a loop.
fn fill(numbers: &mut Numbers) -> String {
    let table = (0..16).map(|_| format!("{}, ", numbers.next() % 65536));
    let table: String = table.collect();
    format!(
        "\tstatic const unsigned table[16] = {{ {table}}};\n\tint i, j;\n\
         \tfor (i = 0; i < 16; i++)\n\t\tfor (j = i; j < {}; j += 3)\n\
         \t\t\tsum = (sum >> 1) + table[(i + j) & 15] * (a | (unsigned long)j);\n",
        16 + numbers.next() % 64
    )
}

/// Numbers without a pattern that a packer would find (xorshift64, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, fs, process};

    use super::{FILES, write};

    #[test]
    fn the_tree_is_c_and_the_same_each_time() {
        let root = env::temp_dir().join(format!("gearv-sources-{}", process::id()));
        let [one, other] = ["one", "other"].map(|name| root.join(name));
        write(&one).unwrap();
        write(&other).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu89", "-Wall", "-Werror", "-fsyntax-only"]);
        for file in (0..FILES).map(|file| format!("part{file}.c")) {
            let same = [&one, &other].map(|tree| fs::read(tree.join(&file)).unwrap());
            assert_eq!(same[0], same[1]);
            compiler.arg(one.join(file));
        }
        assert!(compiler.status().unwrap().success());
        fs::remove_dir_all(root).unwrap();
    }
}
