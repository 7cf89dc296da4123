// SPDX-License-Identifier: GPL-2.0

//! Memory registration: what the device may do with which memory (hardware.md 10.1).
//!
//! Lives here: protection domains and memory keys. Owns: the objects, and memory under a key, which is
//! kept until the device has confirmed that the key is gone, or can no longer write. May be called by:
//! tracer, and verbs; calls cmdif.
//!
//! Pure, and on the host as well: [`context`].

// Rights that only verbs will give are there already.
#[allow(dead_code)]
pub(crate) mod context;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use self::context::{
    Access,
    Direct,
    Key,
    Variant, //
};
use crate::{
    cmdif::{
        command::{
            AllocPd,
            DeallocPd,
            DestroyMkey, //
        },
        os,
        slots::Class,
        CommandError,
        CommandId,
        Interface, //
    },
    kapi::dma::{
        DmaBuf,
        DEVICE_PAGE, //
    },
    layouts::{
        commands::CreateMkeyOut,
        Opcode, //
    },
};

/// A protection domain of the kernel's; freed on drop, after all that is in it.
pub(crate) struct Pd<'a> {
    cmd: Arc<Interface<'a>>,
    number: u32,
}

impl<'a> Pd<'a> {
    /// # Errors
    ///
    /// [`CommandError`] of ALLOC_PD, also when the driver has no memory.
    pub(crate) fn new(cmd: Arc<Interface<'a>>) -> Result<Arc<Self>, CommandError> {
        let reply = cmd.exec::<AllocPd>(0, |_| ())?;
        let number = reply.pd();
        Arc::new(Self { cmd, number }, GFP_KERNEL).map_err(|_| CommandError {
            id: id(Opcode::ALLOC_PD),
            fault: os(ENOMEM),
        })
    }
}

impl Drop for Pd<'_> {
    fn drop(&mut self) {
        let result = self.cmd.exec::<DeallocPd>(0, |input| {
            // The device gave the number: it fits.
            let _ = input.try_set_pd(self.number);
        });
        if let Err(error) = result {
            self.cmd.report_left(&error);
        }
    }
}

fn id(opcode: Opcode) -> CommandId {
    CommandId {
        opcode,
        op_mod: 0,
        uid: 0,
    }
}

/// Counts keys made, for their variants.
static MADE: Atomic<u32> = Atomic::new(0);

/// A direct key to whole pages of DMA memory, which starts at the address that the device knows it
/// by. Destroyed on drop; the memory stays if the device did not confirm that.
pub(crate) struct Mkey<'a> {
    key: Key,
    memory: Arc<DmaBuf>,
    // After the key.
    pd: Arc<Pd<'a>>,
}

impl<'a> Mkey<'a> {
    /// # Errors
    ///
    /// [`CommandError`] of CREATE_MKEY, also when the driver failed before it.
    pub(crate) fn direct(
        pd: Arc<Pd<'a>>,
        memory: Arc<DmaBuf>,
        access: Access,
    ) -> Result<Self, CommandError> {
        let id = id(Opcode::CREATE_MKEY);
        let fail = |error| CommandError {
            id,
            fault: os(error),
        };
        let variant = Variant::of(MADE.fetch_add(1, Relaxed));
        let direct = Direct {
            pd: pd.number,
            variant,
            access,
            start: memory.addr(),
            pages: u32::try_from(memory.len() / DEVICE_PAGE).map_err(|_| fail(EINVAL))?,
        };
        let len = direct.request_len().ok_or_else(|| fail(EINVAL))?;
        let mut input = KVec::from_elem(0, len, GFP_KERNEL).map_err(|_| fail(ENOMEM))?;
        direct
            .write(&mut input, memory.page_addrs())
            .ok_or_else(|| fail(EINVAL))?;
        let mut output = CreateMkeyOut::new();
        let created = pd
            .cmd
            .exec_raw(id, Class::Regular, &mut input, output.as_bytes_mut());
        if let Err(error) = created {
            if error.fault.leaves_device_busy() {
                pd.cmd.leave_behind(memory);
            }
            return Err(error);
        }
        Ok(Self {
            key: Key::new(output.mkey_index(), variant),
            memory,
            pd,
        })
    }

    /// What the device calls it.
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &DmaBuf {
        &self.memory
    }
}

impl Drop for Mkey<'_> {
    fn drop(&mut self) {
        let cmd = &self.pd.cmd;
        let result = cmd.exec::<DestroyMkey>(0, |input| {
            // 24 bits: it fits.
            let _ = input.try_set_mkey_index(self.key.index());
        });
        if let Err(error) = result {
            cmd.report_left(&error);
            cmd.leave_behind(self.memory.clone());
        }
    }
}
