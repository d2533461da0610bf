//! Kernels that compute or move memory.

use std::hint::black_box;
use std::thread;

mod integers;

/// Number of threads of a workload: one for each vCPU.
const THREADS: usize = 2;
/// Bytes of a KiB.
const KIB: usize = 1024;
/// Factor of STREAM's kernels.
const SCALAR: f64 = 3.0;

/// A kernel. Sizes are of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Like Dhrystone: records, strings, branches and integers, in a cache.
    Dhrystone,
    /// Like STREAM: copy, scale, add and triad of three arrays of so many elements of 8 bytes.
    Stream(usize),
    /// Like Cachebench's memory copy, of a buffer of so many KiB.
    Copy(usize),
    /// Like Cachebench's integer read, modify and write, of such a buffer.
    Modify(usize),
}

impl Kernel {
    /// Parses a kernel's name and its size: `dhrystone`, `stream ELEMENTS`, `copy KIB`,
    /// `modify KIB`.
    ///
    /// # Errors
    ///
    /// Says what is wrong.
    pub fn parse(words: &[&str]) -> Result<Kernel, String> {
        let size = |text: &str| match text.parse() {
            Ok(size) if size > 0 => Ok(size),
            _ => Err(format!("the size {text:?} is no positive number")),
        };
        match words {
            ["dhrystone"] => Ok(Kernel::Dhrystone),
            ["stream", elements] => Ok(Kernel::Stream(size(elements)?)),
            ["copy", kib] => Ok(Kernel::Copy(size(kib)?)),
            ["modify", kib] => Ok(Kernel::Modify(size(kib)?)),
            _ => Err(format!("{:?} is no kernel", words.join(" "))),
        }
    }

    /// Runs the kernel so many times in each thread, and returns a sum that depends on all of its
    /// work: a result that nobody uses would be left out by the compiler.
    pub fn run(self, times: u64) -> u64 {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(move || self.run_in_thread(times)))
                .collect();
            let sums = threads.into_iter().map(|thread| thread.join());
            // A thread that panics has told why, and its sum is missing.
            sums.map(|sum| sum.unwrap_or(0)).fold(0, u64::wrapping_add)
        })
    }

    /// Runs in one thread, with memory of its own: threads that shared a buffer would measure how
    /// the machine keeps caches coherent.
    fn run_in_thread(self, times: u64) -> u64 {
        match self {
            Kernel::Dhrystone => integers::run(times),
            Kernel::Stream(elements) => stream(elements, times),
            Kernel::Copy(kib) => copy(kib * KIB, times),
            Kernel::Modify(kib) => modify(kib * KIB / size_of::<u32>(), times),
        }
    }
}

/// Goes over three arrays. The values are those of exact arithmetic, so that the sum can be
/// foretold.
fn stream(elements: usize, times: u64) -> u64 {
    let (mut a, mut b, mut c) = (
        vec![1.0_f64; elements],
        vec![2.0_f64; elements],
        vec![0.0_f64; elements],
    );
    for _ in 0..times {
        c.copy_from_slice(black_box(&a));
        for (b, c) in b.iter_mut().zip(black_box(&c)) {
            *b = SCALAR * c;
        }
        for ((c, a), b) in c.iter_mut().zip(black_box(&a)).zip(black_box(&b)) {
            *c = a + b;
        }
        for ((a, b), c) in a.iter_mut().zip(black_box(&b)).zip(black_box(&c)) {
            // A tenth of STREAM's sum, which grows beyond all bounds.
            *a = (b + SCALAR * c) / 15.0;
        }
    }
    black_box(&a).iter().sum::<f64>() as u64
}

/// Copies a buffer. The libc's copy, whatever it is: as a program would.
fn copy(bytes: usize, times: u64) -> u64 {
    let from = vec![1_u8; bytes];
    let mut to = vec![0_u8; bytes];
    for _ in 0..times {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
    to.iter().map(|&byte| u64::from(byte)).sum()
}

/// Adds 1 to each word of a buffer. A wrapping addition, since a pass more must not be another path
/// than the last one.
fn modify(words: usize, times: u64) -> u64 {
    let mut buffer = vec![0_u32; words];
    for _ in 0..times {
        for word in black_box(&mut buffer).iter_mut() {
            *word = word.wrapping_add(1);
        }
    }
    buffer.iter().map(|&word| u64::from(word)).sum()
}

#[cfg(test)]
mod tests;
