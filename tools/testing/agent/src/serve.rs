// SPDX-License-Identifier: GPL-2.0
//! Answers requests that arrive on the virtio-serial port.

use crate::children::Children;
use crate::{console, exec, kexec, kmsg};
use mlx5_agent::frame::{self, Decoder, SYNC};
use mlx5_agent::proto::{
    Call, Failure, Power, Reply, Request, Response, WriteMode, MAX_DATA, MAX_IN_FLIGHT, VERSION,
};
use rustix::process::{kill_process_group, Pid, Signal};
use rustix::system::{self, RebootCommand};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What a request comes to.
pub type Outcome = Result<Reply, Failure>;

/// Turns an error, or a bare errno, into a [`Failure`].
pub fn failed(what: &str, error: impl Into<Reason>) -> Failure {
    match error.into() {
        Reason::Io(error) => Failure {
            errno: error.raw_os_error().unwrap_or(0),
            what: format!("{what}: {error}"),
        },
        Reason::Errno(errno) => Failure {
            errno,
            what: what.into(),
        },
    }
}

/// The cause in a [`Failure`].
pub enum Reason {
    /// An operation's error.
    Io(io::Error),
    /// An errno of the agent's own, or 0.
    Errno(i32),
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for Reason {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<i32> for Reason {
    fn from(errno: i32) -> Self {
        Self::Errno(errno)
    }
}

/// What belongs to the current conversation.
#[derive(Default)]
struct Conversation {
    /// Counts conversations, so that answers of earlier ones are dropped.
    number: u64,
    in_flight: usize,
    /// Process groups by the request that started them.
    running: HashMap<u64, Pid>,
}

/// Serves one client at a time.
pub struct Server {
    children: Arc<Children>,
    log: Arc<kmsg::Log>,
    conversation: Mutex<Conversation>,
    output: Mutex<File>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Serves `port` for ever; returns only if it cannot be read any more.
    pub fn serve(mut port: File, children: Arc<Children>, log: Arc<kmsg::Log>) -> io::Result<()> {
        let server = Arc::new(Self {
            children,
            log,
            conversation: Mutex::default(),
            output: Mutex::new(port.try_clone()?),
        });
        let mut decoder = Decoder::new();
        let mut buffer = vec![0u8; 65536];
        loop {
            match port.read(&mut buffer) {
                // No host is connected; the port has no other way to wait for
                // one.
                Ok(0) => {
                    if decoder.in_step() {
                        server.end_conversation();
                    }
                    decoder.reset();
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(len) => decoder.push(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            loop {
                match decoder.next_payload() {
                    Ok(None) => break,
                    Ok(Some(payload)) => Self::receive(&server, &payload),
                    // In the middle of a conversation: a new one begins.
                    Err(_) => {}
                }
            }
        }
    }

    /// Kills what runs for the client and makes its answers void.
    fn end_conversation(&self) -> u64 {
        let mut conversation = lock(&self.conversation);
        for group in conversation.running.values() {
            let _ = kill_process_group(*group, Signal::KILL);
        }
        conversation.number += 1;
        conversation.number
    }

    fn receive(server: &Arc<Self>, payload: &[u8]) {
        let request: Request = match frame::decode(payload) {
            Ok(request) => request,
            Err(error) => {
                let current = lock(&server.conversation).number;
                server.answer(current, 0, Err(failed(&error.to_string(), libc_einval())));
                return;
            }
        };
        let id = request.id;
        if let Call::Hello { nonce } = request.call {
            let current = server.end_conversation();
            let release = system::uname().release().to_string_lossy().into_owned();
            let welcome = Reply::Welcome {
                nonce,
                version: VERSION,
                release,
                boot_id: boot_id(),
            };
            let _ = lock(&server.output).write_all(&SYNC);
            server.answer(current, id, Ok(welcome));
            return;
        }
        let current = {
            let mut conversation = lock(&server.conversation);
            if conversation.in_flight >= MAX_IN_FLIGHT {
                let current = conversation.number;
                drop(conversation);
                let what = format!("{MAX_IN_FLIGHT} requests are in progress already");
                server.answer(current, id, Err(failed(&what, rustix::io::Errno::BUSY)));
                return;
            }
            conversation.in_flight += 1;
            conversation.number
        };
        let worker = Arc::clone(server);
        let spawned = thread::Builder::new().spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| {
                worker.handle(current, id, request.call)
            }))
            .unwrap_or_else(|_| Err(failed("the agent panicked; see the console", 0)));
            {
                let mut conversation = lock(&worker.conversation);
                conversation.in_flight -= 1;
                if conversation.number == current {
                    conversation.running.remove(&id);
                }
            }
            worker.answer(current, id, result);
        });
        if let Err(error) = spawned {
            lock(&server.conversation).in_flight -= 1;
            server.answer(current, id, Err(failed("starting a thread", error)));
        }
    }

    /// Sends an answer unless its conversation is over.
    fn answer(&self, number: u64, id: u64, result: Outcome) {
        let response = Response { id, result };
        let bytes = frame::encode(&response).or_else(|error| {
            frame::encode(&Response {
                id,
                result: Err(failed(&error.to_string(), 0)),
            })
        });
        let Ok(bytes) = bytes else {
            return;
        };
        let mut output = lock(&self.output);
        if lock(&self.conversation).number == number {
            // A host that has gone away does not want it.
            let _ = output.write_all(&bytes);
        }
    }

    fn handle(&self, number: u64, id: u64, call: Call) -> Outcome {
        match call {
            Call::Hello { .. } => Err(failed("hello: handled before", 0)),
            Call::Exec(request) => exec::run(&self.children, &request, |group| {
                let mut conversation = lock(&self.conversation);
                if conversation.number == number {
                    conversation.running.insert(id, group);
                } else {
                    let _ = kill_process_group(group, Signal::KILL);
                }
            }),
            Call::Signal { exec, signal } => {
                let what = format!("signal {signal} to request {exec}");
                let signal = Signal::from_named_raw(signal)
                    .ok_or_else(|| failed(&format!("{what}: no such signal"), libc_einval()))?;
                let group = lock(&self.conversation).running.get(&exec).copied();
                let group = group.ok_or_else(|| failed(&what, rustix::io::Errno::SRCH))?;
                kill_process_group(group, signal).map_err(|error| failed(&what, error))?;
                Ok(Reply::Done)
            }
            Call::ReadFile { path, offset, max } => read_file(&path, offset, max),
            Call::WriteFile { path, mode, data } => write_file(&path, mode, &data),
            Call::ListDir { path } => list_dir(&path),
            Call::ReadLink { path } => fs::read_link(&path)
                .map(|target| Reply::Path(target.to_string_lossy().into_owned()))
                .map_err(|error| failed(&format!("readlink {path}"), error)),
            Call::Kmsg { from, wait_ms } => {
                let (records, lost) = self.log.from(from, Duration::from_millis(wait_ms.into()));
                Ok(Reply::Kmsg { records, lost })
            }
            Call::InsertModule { path, params } => insert_module(&path, &params),
            Call::RemoveModule { name } => {
                let what = format!("delete_module {name}");
                let c_name = CString::new(name).map_err(|e| failed(&what, io::Error::from(e)))?;
                // O_NONBLOCK: fail instead of waiting while it is in use.
                system::delete_module(&c_name, rustix::fs::OFlags::NONBLOCK.bits() as i32)
                    .map_err(|error| failed(&what, error))?;
                Ok(Reply::Done)
            }
            Call::LoadKernel(next) => kexec::load(&next),
            Call::Shell => {
                let children = Arc::clone(&self.children);
                console::shell(&children).map_err(|error| failed("console shell", error))?;
                thread::spawn(|| power(Power::Off));
                Ok(Reply::Done)
            }
            Call::Power(how) => Err(failed("reboot", power(how))),
        }
    }
}

fn libc_einval() -> i32 {
    rustix::io::Errno::INVAL.raw_os_error()
}

/// Chosen at random by each boot of a kernel; empty if it has none.
fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim_end().to_owned()
}

/// Returns only on failure.
pub fn power(how: Power) -> rustix::io::Errno {
    rustix::fs::sync();
    let command = match how {
        Power::Off => RebootCommand::PowerOff,
        Power::Reboot => RebootCommand::Restart,
        Power::Kexec => RebootCommand::Kexec,
    };
    match system::reboot(command) {
        Ok(()) => rustix::io::Errno::AGAIN,
        Err(error) => error,
    }
}

fn read_file(path: &str, offset: u64, max: u32) -> Outcome {
    let what = |error: io::Error| failed(&format!("read {path}"), error);
    let max = (max as usize).min(MAX_DATA);
    let mut file = File::open(path).map_err(what)?;
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(what)?;
    }
    let mut data = Vec::new();
    let mut buffer = vec![0u8; 65536];
    loop {
        let room = buffer.len().min(max - data.len());
        if room == 0 {
            return Ok(Reply::Data { data, end: false });
        }
        match file.read(&mut buffer[..room]) {
            Ok(0) => return Ok(Reply::Data { data, end: true }),
            Ok(len) => data.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(what(error)),
        }
    }
}

fn write_file(path: &str, mode: WriteMode, data: &[u8]) -> Outcome {
    let what = |error: io::Error| failed(&format!("write {path}"), error);
    let mut options = OpenOptions::new();
    match mode {
        WriteMode::Existing => options.write(true),
        WriteMode::Create => options.write(true).create(true).truncate(true),
        WriteMode::Append => options.append(true).create(true),
    };
    options
        .open(path)
        .and_then(|mut file| file.write_all(data))
        .map_err(what)?;
    Ok(Reply::Done)
}

fn list_dir(path: &str) -> Outcome {
    let read = || -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    };
    read()
        .map(Reply::Names)
        .map_err(|error| failed(&format!("list {path}"), error))
}

/// Also used for the modules that the initramfs lists.
pub fn insert_module(path: &str, params: &str) -> Outcome {
    let what = |error: io::Error| failed(&format!("finit_module {path} {params}"), error);
    let params = CString::new(params).map_err(|error| what(error.into()))?;
    let file = File::open(path).map_err(what)?;
    system::finit_module(&file, &params, 0).map_err(|error| what(error.into()))?;
    Ok(Reply::Done)
}
