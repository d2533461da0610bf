//! Answer of `last-words`.

use serde::Serialize;

/// Cause of a VM's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Somebody has stopped or restarted it.
    Stopped,
    /// Turned itself off.
    Off,
    /// Has reset itself.
    Reset,
    /// A vCPU could not go on.
    Crash,
    /// No sign of life: of its watchdog, its heartbeat, or its progress.
    Hang,
    /// A cause of a newer Gear2.
    Unknown,
}

/// Register of a vCPU that has left its guest for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastRegister {
    /// Index of the vCPU in the VM.
    pub vcpu: u64,
    /// Name of the register.
    pub register: String,
    /// Value, in hexadecimal digits as text: JSON's numbers have 53 bits.
    pub value: String,
}

/// The end of a life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastEnd {
    /// The life, by the number of starts.
    pub life: u64,
    /// Cause of the end.
    pub cause: Cause,
    /// Seconds of the counter, to a microsecond, as text.
    pub time: String,
}

/// The last life of a VM that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastWords {
    /// Name of the VM.
    pub vm: String,
    /// The life, by the number of starts.
    pub life: u64,
    /// Cause of the end.
    pub cause: Cause,
    /// Seconds of the counter, to a microsecond, as text.
    pub time: String,
    /// Registers of all vCPUs, if the manifest has `last-words` for the VM.
    pub registers: Vec<LastRegister>,
    /// The last lines of the console.
    pub console: Vec<String>,
}
