//! Bugs in parsers of bytes from outside: the replay of each fuzz target's corpus finds one.

use super::Bug;
use super::finder::Finder;

const REPLAY: &str = "tests/fuzz/src/tests.rs";

pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "a CPU has an affinity that no CPU has",
        file: "gear1/init/src/fdt.rs",
        from: "            .filter(|mpidr| mpidr & !AFFINITY == 0)\n",
        to: "",
        breaks: &["G1-BOOT-001"],
        test: REPLAY,
        finder: Finder::HostNamed("tree"),
    },
    Bug {
        name: "a manifest is longer than its bytes",
        file: "manifests/src/blob.rs",
        from: "let bytes = bytes.get(..total).ok_or(BlobError::Short)?;",
        to: "let bytes = &bytes[..total];",
        breaks: &["G1-BOOT-002"],
        test: REPLAY,
        finder: Finder::HostNamed("manifest"),
    },
    Bug {
        name: "an archive's member ends behind the archive",
        file: "manifests/src/archive.rs",
        from: "let data = bytes.get(start..end).ok_or(truncated)?;",
        to: "let data = &bytes[start..end];",
        breaks: &[],
        test: REPLAY,
        finder: Finder::HostNamed("archive"),
    },
    Bug {
        name: "who may only read asks to write, and does",
        file: "gear1/core/src/ffa/descriptor.rs",
        from: "            READ_WRITE if may_write => true,\n            READ_WRITE => return Err(Error::Denied),\n",
        to: "            READ_WRITE => true,\n",
        breaks: &["G1-MEM-012"],
        test: REPLAY,
        finder: Finder::HostNamed("ffa"),
    },
    Bug {
        name: "a console's index is not cut to its ring",
        file: "gear2/core/src/device_model/ring.rs",
        from: "    index as usize % length\n",
        to: "    index as usize % usize::MAX + length * 0\n",
        breaks: &[],
        test: REPLAY,
        finder: Finder::HostNamed("region"),
    },
];
