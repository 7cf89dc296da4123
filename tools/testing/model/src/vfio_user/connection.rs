// SPDX-License-Identifier: GPL-2.0

//! Framing of messages on a stream socket that never blocks.

use std::io::IoSliceMut;
use std::mem;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::recvmsg;
use nix::sys::socket::send;
use nix::sys::socket::ControlMessageOwned;
use nix::sys::socket::MsgFlags;
use thiserror::Error;
use zerocopy::FromBytes;
use zerocopy::IntoBytes;

use super::wire;
use super::wire::Header;

/// Replies that a client leaves unread before it is cut off: more than any client has
/// outstanding (each request waits for its reply), little enough to bound memory.
const MAX_UNSENT: usize = 4 * wire::MAX_PAYLOAD;

/// Descriptors for which there is room in one receive. The kernel's own limit is 253.
const RECEIVE_FDS: usize = 253;

/// Why a connection ends.
#[derive(Debug, Error)]
pub enum Closed {
    /// The client closed it, or it broke.
    #[error("closed by the client")]
    Peer,
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] Errno),
    /// A message shorter than its header: the stream has no next message that can be found.
    #[error("message of {0} bytes, expected at least {min}", min = wire::HEADER_SIZE)]
    Short(u32),
    /// The client does not read.
    #[error("client leaves {0} bytes of replies unread")]
    Unread(usize),
}

/// A message from the client.
#[derive(Debug)]
pub struct Message {
    /// Header.
    pub header: Header,
    /// What follows it; empty if `oversized`.
    pub payload: Vec<u8>,
    /// The payload was larger than [`wire::MAX_PAYLOAD`] and was thrown away.
    pub oversized: bool,
    /// Descriptors, in the order of the client.
    pub fds: Vec<OwnedFd>,
    /// Descriptors were lost on the way.
    pub fds_lost: bool,
}

#[derive(Debug)]
enum Stage {
    Header,
    Payload(Header),
    Discard(Header, usize),
}

/// One client.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    stage: Stage,
    buffer: Vec<u8>,
    fds: Vec<OwnedFd>,
    fds_lost: bool,
    unsent: Vec<u8>,
    cmsg: Vec<u8>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// Takes over a connected socket.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made non-blocking.
    pub fn new(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            stage: Stage::Header,
            buffer: Vec::new(),
            fds: Vec::new(),
            fds_lost: false,
            unsent: Vec::new(),
            cmsg: cmsg_space!([i32; RECEIVE_FDS]),
        })
    }

    /// Whether replies wait for room in the socket.
    pub fn wants_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The next complete message, `None` when there is none yet.
    ///
    /// Reads never go past the message at hand, so every descriptor that arrives belongs to it.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub fn receive(&mut self) -> Result<Option<Message>, Closed> {
        loop {
            match self.stage {
                Stage::Header => {
                    if !self.fill(wire::HEADER_SIZE)? {
                        return Ok(None);
                    }
                    let header = Header::read_from_bytes(&self.buffer)
                        .map_err(|_| Closed::Short(self.buffer.len() as u32))?;
                    self.buffer.clear();
                    let size = header.size as usize;
                    let Some(payload) = size.checked_sub(wire::HEADER_SIZE) else {
                        return Err(Closed::Short(header.size));
                    };
                    self.stage = if payload > wire::MAX_PAYLOAD {
                        Stage::Discard(header, payload)
                    } else {
                        Stage::Payload(header)
                    };
                }
                Stage::Payload(header) => {
                    if !self.fill(header.size as usize - wire::HEADER_SIZE)? {
                        return Ok(None);
                    }
                    return Ok(Some(self.take(header, false)));
                }
                Stage::Discard(header, left) => {
                    let part = left.min(wire::MAX_PAYLOAD);
                    let done = self.fill(part)?;
                    let left = left - self.buffer.len();
                    self.buffer.clear();
                    if left == 0 {
                        return Ok(Some(self.take(header, true)));
                    }
                    self.stage = Stage::Discard(header, left);
                    if !done {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn take(&mut self, header: Header, oversized: bool) -> Message {
        self.stage = Stage::Header;
        Message {
            header,
            payload: mem::take(&mut self.buffer),
            oversized,
            fds: mem::take(&mut self.fds),
            fds_lost: mem::take(&mut self.fds_lost),
        }
    }

    /// Reads until the buffer holds `want` bytes; false when the socket has no more for now.
    fn fill(&mut self, want: usize) -> Result<bool, Closed> {
        while self.buffer.len() < want {
            let have = self.buffer.len();
            self.buffer.resize(want, 0);
            let result = self.read_at(have);
            self.buffer.truncate(have + *result.as_ref().unwrap_or(&0));
            match result {
                Ok(0) => return Err(Closed::Peer),
                Ok(_) => {}
                Err(Errno::EAGAIN) => return Ok(false),
                Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) => return Err(Closed::Peer),
                Err(e) => return Err(Closed::Socket(e)),
            }
        }
        Ok(true)
    }

    fn read_at(&mut self, have: usize) -> Result<usize, Errno> {
        let mut iov = [IoSliceMut::new(&mut self.buffer[have..])];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = self.stream.as_raw_fd();
        let received = recvmsg::<()>(fd, &mut iov, Some(&mut self.cmsg), flags)?;
        self.fds_lost |= received.flags.contains(MsgFlags::MSG_CTRUNC);
        for cmsg in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = cmsg {
                // SAFETY: The kernel has just installed these descriptors for this process, and
                // this is the only place that takes them from the control message.
                self.fds.extend(
                    fds.into_iter()
                        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
        Ok(received.bytes)
    }

    /// Answers `request`, with `payload` or with an error. Does nothing for a request that asked
    /// for no reply.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub fn reply(&mut self, request: &Header, result: Result<&[u8], Errno>) -> Result<(), Closed> {
        if request.flags & wire::FLAG_NO_REPLY != 0 {
            return Ok(());
        }
        let payload = result.unwrap_or(&[]);
        let error = result.err().map_or(0, |e| e as i32 as u32);
        let header = Header {
            id: request.id,
            command: request.command,
            size: (wire::HEADER_SIZE + payload.len()) as u32,
            flags: wire::FLAG_REPLY | if error != 0 { wire::FLAG_ERROR } else { 0 },
            error,
        };
        self.unsent.extend_from_slice(header.as_bytes());
        self.unsent.extend_from_slice(payload);
        self.flush()
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub fn flush(&mut self) -> Result<(), Closed> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(self.stream.as_raw_fd(), &self.unsent[sent..], flags) {
                Ok(n) => sent += n,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Closed::Peer),
                Err(e) => return Err(Closed::Socket(e)),
            }
        }
        self.unsent.drain(..sent);
        if self.unsent.len() > MAX_UNSENT {
            return Err(Closed::Unread(self.unsent.len()));
        }
        Ok(())
    }
}
