// SPDX-License-Identifier: GPL-2.0

//! Listens on a socket and serves one client after the other.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;

use log::debug;
use log::info;
use log::warn;
use nix::errno::Errno;
use serde_json::json;
use vfio_bindings::bindings::vfio as uapi;
use zerocopy::FromBytes;
use zerocopy::Immutable;
use zerocopy::IntoBytes;
use zerocopy::KnownLayout;

use super::command_name;
use super::connection::Closed;
use super::connection::Connection;
use super::connection::Message;
use super::dma;
use super::wire;
use super::wire::Command;
use super::Backend;
use super::IrqSet;

/// Messages handled in one call, so that a busy client does not keep the caller from its
/// timers and its other descriptors.
const BATCH: usize = 64;

/// Binds `path`, in place of a socket that a dead process left there.
///
/// # Errors
///
/// When something else is there, a live process listens on it, or the bind fails.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            if !fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::Error::new(e.kind(), "exists and is not a socket"));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(e.kind(), "another process listens on it"));
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A vfio-user server on a socket in the file system.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    client: Option<Client>,
}

#[derive(Debug)]
struct Client {
    connection: Connection,
    negotiated: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and the next start replaces a stale socket.
        let _ = fs::remove_file(&self.path);
    }
}

impl Server {
    /// Starts to listen on `path`.
    ///
    /// # Errors
    ///
    /// See [`bind`].
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            listener: bind(path)?,
            path: path.to_path_buf(),
            client: None,
        })
    }

    /// The descriptor to poll, and whether to poll it for writing too. While a client is served,
    /// the next one waits in the backlog.
    pub fn poll_fd(&self) -> (BorrowedFd<'_>, bool) {
        match &self.client {
            Some(c) => (c.connection.as_fd(), c.connection.wants_write()),
            None => (self.listener.as_fd(), false),
        }
    }

    /// Whether a client is connected.
    pub fn connected(&self) -> bool {
        self.client.is_some()
    }

    /// Accepts a client or handles messages of the present one, as far as possible without
    /// waiting.
    pub fn service(&mut self, backend: &mut dyn Backend) {
        if self.client.is_none() {
            self.accept();
            return;
        }
        if let Some(client) = &mut self.client {
            if let Err(why) = client.service(backend) {
                match why {
                    Closed::Peer => info!("client disconnected"),
                    other => warn!("connection ended: {other}"),
                }
                self.client = None;
                backend.disconnected();
            }
        }
    }

    fn accept(&mut self) {
        match self
            .listener
            .accept()
            .and_then(|(stream, _)| Connection::new(stream))
        {
            Ok(connection) => {
                info!("client connected");
                self.client = Some(Client {
                    connection,
                    negotiated: false,
                });
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => warn!("accept: {e}"),
        }
    }
}

impl Client {
    fn service(&mut self, backend: &mut dyn Backend) -> Result<(), Closed> {
        self.connection.flush()?;
        for _ in 0..BATCH {
            let Some(message) = self.connection.receive()? else {
                break;
            };
            let header = message.header;
            if header.flags & wire::FLAG_TYPE_MASK != wire::FLAG_COMMAND {
                // No command is ever sent to the client, so this answers nothing.
                warn!("{}: not a command, ignored", command_name(header.command));
                continue;
            }
            let result = self.handle(message, backend);
            if let Err(e) = result {
                warn!("{}: {e}", command_name(header.command));
            }
            self.connection
                .reply(&header, result.as_deref().map_err(|e| *e))?;
        }
        Ok(())
    }

    fn handle(&mut self, message: Message, backend: &mut dyn Backend) -> Result<Vec<u8>, Errno> {
        if message.oversized {
            return Err(Errno::EMSGSIZE);
        }
        if message.fds_lost || message.fds.len() > wire::MAX_FDS {
            return Err(Errno::EMFILE);
        }
        let command = Command::from_number(message.header.command).ok_or(Errno::EOPNOTSUPP)?;
        if !self.negotiated && command != Command::Version {
            return Err(Errno::EPROTO);
        }
        let payload = message.payload.as_slice();
        match command {
            Command::Version => {
                let reply = version(payload)?;
                self.negotiated = true;
                Ok(reply)
            }
            Command::DmaMap => {
                let (map, _) = fixed::<wire::DmaMap>(payload)?;
                debug!(
                    "map {:#x}+{:#x} flags {:#x}",
                    map.address, map.size, map.flags
                );
                let request = dma::Request {
                    range: dma::Range::new(map.address, map.size).ok_or(Errno::EINVAL)?,
                    read: map.flags & wire::DMA_READ != 0,
                    write: map.flags & wire::DMA_WRITE != 0,
                    offset: map.offset,
                };
                backend.dma_map(request, message.fds.into_iter().next())?;
                Ok(Vec::new())
            }
            Command::DmaUnmap => {
                let (unmap, _) = fixed::<wire::DmaUnmap>(payload)?;
                debug!(
                    "unmap {:#x}+{:#x} flags {:#x}",
                    unmap.address, unmap.size, unmap.flags
                );
                if unmap.flags & wire::UNMAP_DIRTY_BITMAP != 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
                let range = if unmap.flags & wire::UNMAP_ALL != 0 {
                    dma::Range::ALL
                } else {
                    dma::Range::new(unmap.address, unmap.size).ok_or(Errno::EINVAL)?
                };
                backend.dma_unmap(range)?;
                Ok(unmap.as_bytes().to_vec())
            }
            Command::DeviceGetInfo => {
                let (info, _) = fixed::<wire::DeviceInfo>(payload)?;
                if (info.argsz as usize) < size_of::<wire::DeviceInfo>() {
                    return Err(Errno::EINVAL);
                }
                let (flags, num_regions, num_irqs) = backend.info();
                Ok(wire::DeviceInfo {
                    argsz: size_of::<wire::DeviceInfo>() as u32,
                    flags,
                    num_regions,
                    num_irqs,
                }
                .as_bytes()
                .to_vec())
            }
            Command::DeviceGetRegionInfo => {
                let (info, _) = fixed::<wire::RegionInfo>(payload)?;
                let region = backend.region(info.index).ok_or(Errno::EINVAL)?;
                Ok(wire::RegionInfo {
                    argsz: size_of::<wire::RegionInfo>() as u32,
                    flags: region.flags,
                    index: info.index,
                    cap_offset: 0,
                    size: region.size,
                    offset: 0,
                }
                .as_bytes()
                .to_vec())
            }
            Command::DeviceGetIrqInfo => {
                let (info, _) = fixed::<wire::IrqInfo>(payload)?;
                let irq = backend.irq(info.index).ok_or(Errno::EINVAL)?;
                Ok(wire::IrqInfo {
                    argsz: size_of::<wire::IrqInfo>() as u32,
                    flags: irq.flags,
                    index: info.index,
                    count: irq.count,
                }
                .as_bytes()
                .to_vec())
            }
            Command::DeviceSetIrqs => {
                let (set, data) = fixed::<wire::SetIrqs>(payload)?;
                let irq = backend.irq(set.index).ok_or(Errno::EINVAL)?;
                let end = set.start.checked_add(set.count).ok_or(Errno::EINVAL)?;
                if end > irq.count || message.fds.len() > set.count as usize {
                    return Err(Errno::EINVAL);
                }
                let bools = set.flags & uapi::VFIO_IRQ_SET_DATA_BOOL != 0;
                if bools && data.len() < set.count as usize {
                    return Err(Errno::EINVAL);
                }
                backend.set_irqs(IrqSet {
                    flags: set.flags,
                    index: set.index,
                    start: set.start,
                    count: set.count,
                    fds: message.fds,
                    data: data.to_vec(),
                })?;
                Ok(Vec::new())
            }
            Command::RegionRead => {
                let (access, _) = fixed::<wire::RegionAccess>(payload)?;
                check(&access, backend)?;
                let mut data = vec![0; access.count as usize];
                backend.region_read(access.region, access.offset, &mut data)?;
                let mut reply = access.as_bytes().to_vec();
                reply.append(&mut data);
                Ok(reply)
            }
            Command::RegionWrite => {
                let (access, data) = fixed::<wire::RegionAccess>(payload)?;
                check(&access, backend)?;
                let data = data.get(..access.count as usize).ok_or(Errno::EINVAL)?;
                backend.region_write(access.region, access.offset, data)?;
                Ok(access.as_bytes().to_vec())
            }
            Command::DeviceReset => {
                backend.reset();
                Ok(Vec::new())
            }
            Command::DeviceGetRegionIoFds
            | Command::DmaRead
            | Command::DmaWrite
            | Command::DirtyPages => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// The fixed part of a payload and what follows it.
fn fixed<T: FromBytes + KnownLayout + Immutable>(payload: &[u8]) -> Result<(T, &[u8]), Errno> {
    T::read_from_prefix(payload).map_err(|_| Errno::EINVAL)
}

/// Bounds of a region access.
fn check(access: &wire::RegionAccess, backend: &dyn Backend) -> Result<(), Errno> {
    let region = backend.region(access.region).ok_or(Errno::EINVAL)?;
    let end = access
        .offset
        .checked_add(u64::from(access.count))
        .ok_or(Errno::EINVAL)?;
    if access.count as usize > wire::MAX_DATA || end > region.size {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Answers VERSION. Capabilities of the client bound only what is sent to it, and nothing that
/// they bound is ever sent, so they are not looked at.
fn version(payload: &[u8]) -> Result<Vec<u8>, Errno> {
    let (version, _) = fixed::<wire::Version>(payload)?;
    if version.major != wire::MAJOR {
        warn!("client speaks version {}.{}", version.major, version.minor);
        return Err(Errno::EINVAL);
    }
    let mut reply = wire::Version {
        major: wire::MAJOR,
        minor: wire::MINOR,
    }
    .as_bytes()
    .to_vec();
    let capabilities = json!({
        "capabilities": {
            "max_msg_fds": wire::MAX_FDS,
            "max_data_xfer_size": wire::MAX_DATA,
        }
    });
    reply.extend_from_slice(capabilities.to_string().as_bytes());
    reply.push(0);
    Ok(reply)
}
