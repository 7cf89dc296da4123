// SPDX-License-Identifier: GPL-2.0
//! The host side of the command channel into the guest.

use anyhow::{bail, Context, Result};
use mlx5_agent::frame::{self, Decoder, SYNC};
use mlx5_agent::proto::{
    Call, Exec, Failure, Finished, Reply, Request, Response, Status, WriteMode, MAX_DATA, VERSION,
};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a greeting is sent until it is answered. Only the answer to the
/// last one counts, so that none can end the conversation later.
const GREETING_PERIOD: Duration = Duration::from_secs(2);

/// Largest file that is read as a whole.
const MAX_FILE: usize = 64 << 20;

/// Why the guest did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The operation failed.
    #[error("in the guest: {} (errno {})", .0.what, .0.errno)]
    Failed(Failure),
    /// No answer in time.
    #[error("the guest's agent has not answered within {0:?}")]
    Timeout(Duration),
    /// The channel is closed: QEMU has ended, or the agent talks nonsense.
    #[error("the channel to the guest's agent is closed: {0}")]
    Closed(String),
    /// An answer of another kind than the request's.
    #[error("unexpected answer of the guest's agent: {0}")]
    Unexpected(String),
}

impl GuestError {
    /// The Linux error number of a failed operation.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Failed(failure) => Some(failure.errno),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    answers: HashMap<u64, Sender<Response>>,
    closed: Option<String>,
}

/// A conversation with the agent. Requests can be made from many threads.
#[derive(Debug)]
pub struct Agent {
    waiting: Arc<Mutex<Waiting>>,
    stream: UnixStream,
    output: Mutex<()>,
    next: AtomicU64,
    /// Kernel release of the guest.
    pub release: String,
    /// Which boot of the guest's kernel this is.
    boot_id: String,
    /// Added to the time a program may take, for the way there and back.
    slack: Duration,
}

/// Who has greeted back.
#[derive(Debug)]
pub struct Greeting {
    /// Kernel release of the guest.
    pub release: String,
    /// Which boot of the guest's kernel this is.
    pub boot_id: String,
}

/// A request in progress.
#[derive(Debug)]
pub struct Pending {
    /// Its number, which [`Call::Signal`] wants.
    pub id: u64,
    answer: Receiver<Response>,
    waiting: Arc<Mutex<Waiting>>,
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn wait(&self, timeout: Duration) -> Result<Reply, GuestError> {
        match self.answer.recv_timeout(timeout) {
            Ok(response) => response.result.map_err(GuestError::Failed),
            Err(RecvTimeoutError::Timeout) => Err(GuestError::Timeout(timeout)),
            Err(RecvTimeoutError::Disconnected) => {
                let closed = lock(&self.waiting).closed.clone();
                Err(GuestError::Closed(closed.unwrap_or_default()))
            }
        }
    }

    /// As [`Self::wait`], for [`Call::Exec`].
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn finished(&self, timeout: Duration) -> Result<Finished, GuestError> {
        match self.wait(timeout)? {
            Reply::Finished(finished) => Ok(finished),
            other => Err(GuestError::Unexpected(format!("{other:?}"))),
        }
    }
}

impl Agent {
    /// Connects to the port's socket and waits up to `timeout` for the agent
    /// to greet back, which it does once the guest has booted. `alive` is
    /// asked meanwhile whether that can still happen.
    ///
    /// # Errors
    ///
    /// If it does not, or is of another version.
    pub fn connect(
        path: &Path,
        timeout: Duration,
        slack: Duration,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<Self> {
        let what = || format!("agent socket {}", path.display());
        let stream = UnixStream::connect(path).with_context(what)?;
        let input = stream.try_clone().with_context(what)?;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let shared = Arc::clone(&waiting);
        thread::Builder::new()
            .name("agent".into())
            .spawn(move || receive(input, &shared))
            .context("starting a thread")?;
        let mut agent = Self {
            waiting,
            stream,
            output: Mutex::default(),
            next: AtomicU64::new(1),
            release: String::new(),
            boot_id: String::new(),
            slack,
        };
        let greeting = agent.greet(timeout, &mut alive)?;
        agent.release = greeting.release;
        agent.boot_id = greeting.boot_id;
        Ok(agent)
    }

    /// Waits up to `timeout` for the agent of the guest's next kernel. Nobody
    /// waits any more for what the one before was asked.
    ///
    /// # Errors
    ///
    /// As [`Self::greet`].
    pub fn reconnect(
        &mut self,
        timeout: Duration,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let greeting = self.greet(left, &mut alive)?;
            if greeting.boot_id != self.boot_id {
                self.release = greeting.release;
                self.boot_id = greeting.boot_id;
                return Ok(());
            }
            // The old one still answers. It is not asked all the time, since
            // it has to end.
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Starts a new conversation, which ends what runs for the one before.
    /// See [`Self::connect`].
    ///
    /// # Errors
    ///
    /// If the agent does not greet back, or is of another version.
    pub fn greet(
        &self,
        timeout: Duration,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<Greeting> {
        let deadline = Instant::now() + timeout;
        let nonce = u64::from(std::process::id()) << 32 | self.next.load(Ordering::Relaxed);
        loop {
            self.send_raw(&SYNC)?;
            let pending = self.start(Call::Hello { nonce })?;
            let again = (Instant::now() + GREETING_PERIOD).min(deadline);
            loop {
                alive()?;
                match pending.wait(Duration::from_millis(100)) {
                    Ok(Reply::Welcome {
                        nonce: same,
                        version,
                        release,
                        boot_id,
                    }) if same == nonce => {
                        if version != VERSION {
                            bail!("the agent has protocol version {version}, expected {VERSION}: build it again");
                        }
                        return Ok(Greeting { release, boot_id });
                    }
                    Ok(_) | Err(GuestError::Timeout(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                if Instant::now() > again {
                    break;
                }
            }
            if Instant::now() > deadline {
                bail!("the guest's agent has not come up within {timeout:?}");
            }
        }
    }

    /// Sends bytes as they are. Only for tests of the agent: what is no frame
    /// makes it wait for a new conversation ([`Self::greet`]).
    ///
    /// # Errors
    ///
    /// [`GuestError::Closed`].
    pub fn send_raw(&self, bytes: &[u8]) -> Result<(), GuestError> {
        let _one_at_a_time = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream)
            .write_all(bytes)
            .map_err(|error| GuestError::Closed(error.to_string()))
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// [`GuestError::Closed`].
    pub fn start(&self, call: Call) -> Result<Pending, GuestError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = channel();
        {
            let mut waiting = lock(&self.waiting);
            if let Some(reason) = &waiting.closed {
                return Err(GuestError::Closed(reason.clone()));
            }
            waiting.answers.insert(id, sender);
        }
        let bytes = frame::encode(&Request { id, call })
            .map_err(|error| GuestError::Unexpected(error.to_string()))?;
        self.send_raw(&bytes)?;
        Ok(Pending {
            id,
            answer,
            waiting: Arc::clone(&self.waiting),
        })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn call(&self, call: Call, timeout: Duration) -> Result<Reply, GuestError> {
        self.start(call)?.wait(timeout)
    }

    /// Starts a program that may run for `timeout`.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn spawn(
        &self,
        argv: &[&str],
        stdin: &[u8],
        timeout: Duration,
    ) -> Result<Pending, GuestError> {
        self.start(Call::Exec(Exec {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            stdin: stdin.into(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            ..Exec::default()
        }))
    }

    /// Runs a program to its end, whatever that is.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn exec(&self, argv: &[&str], timeout: Duration) -> Result<Finished, GuestError> {
        // Two grace periods of the agent for what cannot be killed.
        let limit = timeout + self.slack + Duration::from_secs(10);
        self.spawn(argv, &[], timeout)?.finished(limit)
    }

    /// Runs a program that must succeed and returns its output.
    ///
    /// # Errors
    ///
    /// If it fails: with its error stream.
    pub fn output(&self, argv: &[&str], timeout: Duration) -> Result<String> {
        let finished = self.exec(argv, timeout).with_context(|| argv.join(" "))?;
        if finished.status != Status::Exited(0) {
            bail!(
                "in the guest: {}: {:?}: {}",
                argv.join(" "),
                finished.status,
                String::from_utf8_lossy(&finished.stderr).trim_end()
            );
        }
        Ok(String::from_utf8_lossy(&finished.stdout).into_owned())
    }

    fn quick(&self, call: Call) -> Result<Reply, GuestError> {
        self.call(call, Duration::from_secs(10) + self.slack)
    }

    /// Reads a whole file of at most 64 MiB.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn read(&self, path: &str) -> Result<Vec<u8>, GuestError> {
        let mut all = Vec::new();
        loop {
            let call = Call::ReadFile {
                path: path.into(),
                offset: all.len() as u64,
                max: MAX_DATA as u32,
            };
            match self.quick(call)? {
                Reply::Data { data, end } => {
                    all.extend_from_slice(&data);
                    if end {
                        return Ok(all);
                    }
                }
                other => return Err(GuestError::Unexpected(format!("{path}: {other:?}"))),
            }
            if all.len() > MAX_FILE {
                let text = format!("{path} has more than {MAX_FILE} bytes");
                return Err(GuestError::Unexpected(text));
            }
        }
    }

    /// Reads a text file, without blanks at its ends.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn text(&self, path: &str) -> Result<String, GuestError> {
        Ok(String::from_utf8_lossy(&self.read(path)?).trim().to_owned())
    }

    /// Writes to a file of sysfs, procfs or debugfs.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn set(&self, path: &str, value: &str, timeout: Duration) -> Result<(), GuestError> {
        self.set_bytes(path, value.as_bytes(), timeout)
    }

    /// As [`Self::set`], for bytes.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn set_bytes(&self, path: &str, bytes: &[u8], timeout: Duration) -> Result<(), GuestError> {
        let call = Call::WriteFile {
            path: path.into(),
            mode: WriteMode::Existing,
            data: bytes.into(),
        };
        self.call(call, timeout).map(drop)
    }

    /// Names in a folder, sorted.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn list(&self, path: &str) -> Result<Vec<String>, GuestError> {
        match self.quick(Call::ListDir { path: path.into() })? {
            Reply::Names(names) => Ok(names),
            other => Err(GuestError::Unexpected(format!("{path}: {other:?}"))),
        }
    }

    /// Target of a symbolic link, `None` if there is no link.
    ///
    /// # Errors
    ///
    /// See [`GuestError`].
    pub fn link(&self, path: &str) -> Result<Option<String>, GuestError> {
        match self.quick(Call::ReadLink { path: path.into() }) {
            Ok(Reply::Path(target)) => Ok(Some(target)),
            Ok(other) => Err(GuestError::Unexpected(format!("{path}: {other:?}"))),
            Err(error) if error.errno() == Some(rustix::io::Errno::NOENT.raw_os_error()) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Ends the receiving thread, and tells the agent that we are gone.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn receive(mut stream: UnixStream, waiting: &Mutex<Waiting>) {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0u8; 65536];
    let reason = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break "end of file".to_owned(),
            Ok(len) => decoder.push(&buffer[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => break error.to_string(),
        }
        loop {
            match decoder.next_payload() {
                Ok(None) => break,
                Ok(Some(payload)) => match frame::decode::<Response>(&payload) {
                    Ok(response) => {
                        let sender = lock(waiting).answers.remove(&response.id);
                        if let Some(sender) = sender {
                            // Nobody waits any more: not an error.
                            let _ = sender.send(response);
                        }
                    }
                    Err(error) => eprintln!("mlx5-vm: from the guest's agent: {error}"),
                },
                // The answer to a second greeting starts with SYNC as well.
                Err(_) => {}
            }
        }
    };
    let mut waiting = lock(waiting);
    waiting.closed = Some(reason);
    waiting.answers.clear();
}
