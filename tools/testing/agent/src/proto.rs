// SPDX-License-Identifier: GPL-2.0
//! Requests and responses. Every request is answered exactly once, in any
//! order; `id` tells which answer belongs to which request.

use serde::{Deserialize, Serialize};

/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "mlx5.agent";

/// Changes whenever a message changes its form.
pub const VERSION: u32 = 2;

/// Requests that may be in progress at the same time; more are refused with
/// `EBUSY`.
pub const MAX_IN_FLIGHT: usize = 64;

/// Bytes that one `ReadFile` returns, or one stream of an [`Exec`] may hold.
pub const MAX_DATA: usize = 4 << 20;

/// Where the files that the harness packed for this boot are in the guest,
/// whatever root file system it runs on.
pub const PAYLOAD: &str = "/run/payload";

/// From host to guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the client, unique within its conversation.
    pub id: u64,
    /// What to do.
    pub call: Call,
}

/// What the agent can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Call {
    /// Starts a conversation: what ran for an earlier client is killed, and
    /// its answers are dropped. Answered by [`Reply::Welcome`].
    Hello {
        /// Returned as it is.
        nonce: u64,
    },
    /// Runs a program to its end. Answered by [`Reply::Finished`].
    Exec(Exec),
    /// Sends a signal to the process group of a running [`Call::Exec`].
    Signal {
        /// The request that started the program.
        exec: u64,
        /// Signal number.
        signal: i32,
    },
    /// Answered by [`Reply::Data`].
    ReadFile {
        /// Absolute path.
        path: String,
        /// Bytes to skip.
        offset: u64,
        /// Most bytes to return, at most [`MAX_DATA`].
        max: u32,
    },
    /// Writes `data` to `path`, in one system call if the file takes it so.
    WriteFile {
        /// Absolute path.
        path: String,
        /// What to do with a file that is or is not there.
        mode: WriteMode,
        /// What to write.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Answered by [`Reply::Names`], sorted.
    ListDir {
        /// Absolute path.
        path: String,
    },
    /// Answered by [`Reply::Path`].
    ReadLink {
        /// Absolute path.
        path: String,
    },
    /// Kernel messages from sequence number `from` on. If there are none yet,
    /// waits for one. Answered by [`Reply::Kmsg`].
    Kmsg {
        /// First sequence number wanted.
        from: u64,
        /// Longest time to wait, in milliseconds.
        wait_ms: u32,
    },
    /// `finit_module(2)`.
    InsertModule {
        /// Absolute path of an uncompressed module.
        path: String,
        /// Parameters as on insmod's command line.
        params: String,
    },
    /// `delete_module(2)`.
    RemoveModule {
        /// Name of the module, with underscores.
        name: String,
    },
    /// Loads a kernel to go on with, by `kexec_file_load(2)`: at
    /// [`Power::Kexec`], or when this one panics.
    LoadKernel(NextKernel),
    /// Starts an interactive shell on the console; the guest powers off when
    /// it ends.
    Shell,
    /// Ends the guest. Usually no answer comes.
    Power(Power),
}

/// A program to run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments; the program is looked up in `PATH`.
    pub argv: Vec<String>,
    /// Added to the agent's environment.
    pub env: Vec<(String, String)>,
    /// Working directory, `/` if `None`.
    pub cwd: Option<String>,
    /// Standard input.
    #[serde(with = "serde_bytes")]
    pub stdin: Vec<u8>,
    /// Time after which its process group is killed, in milliseconds.
    pub timeout_ms: u64,
}

/// A kernel to go on with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextKernel {
    /// Absolute path of its image.
    pub image: String,
    /// Absolute path of its initramfs.
    pub initrd: String,
    /// Its command line.
    pub cmdline: String,
    /// For a panic, in the memory that `crashkernel=` has set aside.
    pub on_crash: bool,
}

/// How [`Call::WriteFile`] opens its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteMode {
    /// The file must be there and is not truncated (sysfs, debugfs, procfs).
    Existing,
    /// Truncated or created.
    Create,
    /// Created where missing, written at its end.
    Append,
}

/// How to end the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// ACPI power off.
    Off,
    /// Restart; QEMU exits if it was started with `-no-reboot`.
    Reboot,
    /// Into the kernel that [`Call::LoadKernel`] has loaded.
    Kexec,
}

/// From guest to host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The request's id; 0 if the request could not be read.
    pub id: u64,
    /// The outcome.
    pub result: Result<Reply, Failure>,
}

/// Successful outcomes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Nothing to say.
    Done,
    /// To [`Call::Hello`].
    Welcome {
        /// As in the request.
        nonce: u64,
        /// [`VERSION`] of the agent.
        version: u32,
        /// Kernel release, as `uname -r` prints it.
        release: String,
        /// Tells this boot of the kernel from every other one.
        boot_id: String,
    },
    /// To [`Call::Exec`].
    Finished(Finished),
    /// To [`Call::ReadFile`].
    Data {
        /// What was read.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// Whether the end of the file was reached.
        end: bool,
    },
    /// To [`Call::ListDir`].
    Names(Vec<String>),
    /// To [`Call::ReadLink`].
    Path(String),
    /// To [`Call::Kmsg`].
    Kmsg {
        /// In order of their sequence numbers.
        records: Vec<Record>,
        /// Messages at or after the number asked for that were overwritten
        /// before they were read.
        lost: u64,
    },
}

/// The end of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// How it ended.
    pub status: Status,
    /// Standard output, at most [`MAX_DATA`] bytes.
    #[serde(with = "serde_bytes")]
    pub stdout: Vec<u8>,
    /// Standard error, at most [`MAX_DATA`] bytes.
    #[serde(with = "serde_bytes")]
    pub stderr: Vec<u8>,
    /// Whether it wrote more than that.
    pub truncated: bool,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It ran out of time and was killed.
    TimedOut,
    /// It ran out of time and cannot be killed (it sleeps in the kernel).
    Stuck,
}

/// One message of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Sequence number.
    pub seq: u64,
    /// Syslog level 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Microseconds since boot.
    pub time_us: u64,
    /// The message without its trailing newline.
    pub text: String,
}

/// Why a request could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Operation and object.
    pub what: String,
    /// Linux error number, 0 if there is none.
    pub errno: i32,
}
