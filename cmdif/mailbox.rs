// SPDX-License-Identifier: GPL-2.0

//! Mailbox memory: pages cut into mailboxes, lent to commands and taken back.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::wire::{
    self,
    MAILBOX,
    MAILBOX_DATA,
    MAILBOX_STRIDE, //
};
use super::Fault;
use crate::kapi::dma::{
    Dma,
    DmaBuf,
    DEVICE_PAGE, //
};

/// One mailbox: a part of a page that stays alive with it.
struct Mailbox {
    page: Arc<DmaBuf>,
    offset: usize,
}

impl Mailbox {
    fn addr(&self) -> u64 {
        self.page.addr() + self.offset as u64
    }
}

/// The mailboxes of one message, in order.
pub(super) struct Chain(KVec<Mailbox>);

impl Chain {
    /// The address of the first mailbox, 0 for an empty chain.
    pub(super) fn addr(&self) -> u64 {
        self.0.first().map_or(0, Mailbox::addr)
    }

    /// Writes `data` (nothing, for a reply to come) and the trailers into all mailboxes.
    pub(super) fn write(&self, data: &[u8], token: u8) -> Result {
        let mut rest = data;
        for (i, mailbox) in self.0.iter().enumerate() {
            let (part, tail) = rest.split_at(rest.len().min(MAILBOX_DATA));
            rest = tail;
            let next = self.0.get(i + 1).map_or(0, Mailbox::addr);
            let bytes = wire::mailbox(part, next, u32::try_from(i)?, token);
            mailbox.page.write(mailbox.offset, &bytes)?;
        }
        Ok(())
    }

    /// Reads a reply of `out.len()` bytes out of the mailboxes.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] for a mailbox with a wrong token or number.
    pub(super) fn read(&self, out: &mut [u8], token: u8) -> Result<(), Fault> {
        for (number, (part, mailbox)) in (0..).zip(out.chunks_mut(MAILBOX_DATA).zip(self.0.iter()))
        {
            let mut bytes = [0; MAILBOX];
            mailbox
                .page
                .read(mailbox.offset, &mut bytes)
                .map_err(super::os)?;
            wire::check_mailbox(&bytes, number, token)?;
            for (to, from) in part.iter_mut().zip(bytes.iter().take(MAILBOX_DATA)) {
                *to = *from;
            }
        }
        Ok(())
    }
}

/// All mailboxes of an interface. It grows with the commands in flight, which are bounded by the
/// slots and [`wire::MAX_MAILBOXES`], and shrinks only with the interface.
#[pin_data]
pub(super) struct Pool<'a> {
    dma: Dma<'a>,
    #[pin]
    free: Mutex<Free>,
}

struct Free {
    // Has room for every mailbox there is, so that giving back cannot fail.
    mailboxes: KVec<Mailbox>,
    total: usize,
}

impl<'a> Pool<'a> {
    pub(super) fn new(dma: Dma<'a>) -> impl PinInit<Self> + 'a {
        pin_init!(Self {
            dma,
            free <- new_mutex!(Free { mailboxes: KVec::new(), total: 0 }, "mlx5_rs_mailboxes"),
        })
    }

    /// Lends `n` mailboxes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn take(&self, n: usize) -> Result<Chain> {
        let mut chain = KVec::with_capacity(n, GFP_KERNEL)?;
        let mut free = self.free.lock();
        while chain.len() < n {
            match free.mailboxes.pop() {
                Some(mailbox) => {
                    if chain.push_within_capacity(mailbox).is_err() {
                        return Err(ENOMEM);
                    }
                }
                None => {
                    if let Err(e) = self.grow(&mut free) {
                        Self::give_back(&mut free, chain);
                        return Err(e);
                    }
                }
            }
        }
        Ok(Chain(chain))
    }

    /// Takes a chain back. The device is done with it.
    pub(super) fn put(&self, chain: Chain) {
        Self::give_back(&mut self.free.lock(), chain.0);
    }

    fn give_back(free: &mut Free, chain: KVec<Mailbox>) {
        for mailbox in chain {
            // Cannot fail: there is room for all. If it did, the mailbox would be freed.
            let _ = free.mailboxes.push_within_capacity(mailbox);
        }
    }

    fn grow(&self, free: &mut Free) -> Result {
        const PER_PAGE: usize = DEVICE_PAGE / MAILBOX_STRIDE;

        let total = free.total + PER_PAGE;
        let missing = total - free.mailboxes.len();
        free.mailboxes.reserve(missing, GFP_KERNEL)?;
        let page = Arc::new(self.dma.buffer(1)?, GFP_KERNEL)?;
        for i in 0..PER_PAGE {
            let mailbox = Mailbox {
                page: page.clone(),
                offset: i * MAILBOX_STRIDE,
            };
            if free.mailboxes.push_within_capacity(mailbox).is_err() {
                return Err(ENOMEM);
            }
        }
        free.total = total;
        Ok(())
    }
}
