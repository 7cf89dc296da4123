// SPDX-License-Identifier: GPL-2.0

//! Interrupt vectors of one index (MSI-X).

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;

use log::warn;
use nix::errno::Errno;
use nix::fcntl::fcntl;
use nix::fcntl::FcntlArg;
use nix::fcntl::OFlag;
use vfio_bindings::bindings::vfio as uapi;

use super::IrqSet;

/// Vectors with the descriptors that the client gave for them.
#[derive(Debug)]
pub struct Vectors {
    fds: Vec<Option<File>>,
}

impl Vectors {
    /// `count` vectors without descriptors.
    pub fn new(count: usize) -> Self {
        Self {
            fds: (0..count).map(|_| None).collect(),
        }
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.fds.len()
    }

    /// Whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }

    /// Whether the client takes interrupts of `vector`.
    pub fn assigned(&self, vector: usize) -> bool {
        self.fds.get(vector).is_some_and(Option::is_some)
    }

    /// Takes all descriptors away.
    pub fn clear(&mut self) {
        self.fds.iter_mut().for_each(|f| *f = None);
    }

    /// Carries out SET_IRQS; the range has been checked.
    ///
    /// # Errors
    ///
    /// EINVAL for a combination of flags that VFIO does not have; EOPNOTSUPP for masking, which
    /// the vectors do not offer.
    pub fn set(&mut self, set: IrqSet) -> Result<(), Errno> {
        let data = set.flags & uapi::VFIO_IRQ_SET_DATA_TYPE_MASK;
        let action = set.flags & uapi::VFIO_IRQ_SET_ACTION_TYPE_MASK;
        let (start, count) = (set.start as usize, set.count as usize);
        let range = start..start.checked_add(count).ok_or(Errno::EINVAL)?;
        if range.end > self.fds.len() {
            return Err(Errno::EINVAL);
        }
        match action {
            uapi::VFIO_IRQ_SET_ACTION_TRIGGER => {}
            uapi::VFIO_IRQ_SET_ACTION_MASK | uapi::VFIO_IRQ_SET_ACTION_UNMASK => {
                return Err(Errno::EOPNOTSUPP)
            }
            _ => return Err(Errno::EINVAL),
        }
        match data {
            uapi::VFIO_IRQ_SET_DATA_EVENTFD => {
                for fd in &set.fds {
                    nonblocking(fd)?;
                }
                let mut fds = set.fds.into_iter().map(File::from);
                for vector in range {
                    self.fds[vector] = fds.next();
                }
            }
            // No vectors and no data: the client turns the index off.
            uapi::VFIO_IRQ_SET_DATA_NONE if count == 0 => self.clear(),
            uapi::VFIO_IRQ_SET_DATA_NONE => range.for_each(|v| {
                self.raise(v);
            }),
            uapi::VFIO_IRQ_SET_DATA_BOOL => {
                for (vector, on) in range.zip(set.data) {
                    if on != 0 {
                        self.raise(vector);
                    }
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Raises `vector`; false if the client does not take it.
    pub fn raise(&mut self, vector: usize) -> bool {
        let Some(Some(file)) = self.fds.get_mut(vector) else {
            return false;
        };
        match file.write(&1u64.to_ne_bytes()) {
            Ok(_) => true,
            // The counter is full: the client has the interrupt already.
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => true,
            Err(e) => {
                warn!("vector {vector}: {e}");
                false
            }
        }
    }
}

/// A descriptor that could block would stop the message loop.
fn nonblocking(fd: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlag::from_bits_retain(fcntl(fd.as_fd(), FcntlArg::F_GETFL)?);
    if !flags.contains(OFlag::O_NONBLOCK) {
        fcntl(fd.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
