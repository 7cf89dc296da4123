// SPDX-License-Identifier: GPL-2.0

//! What the driver did wrong.
//!
//! Each rule has a name that tests and docs/model-control.md use. Violations stay until
//! they are cleared through the control socket, also over resets and clients.

use log::warn;
use serde::Deserialize;
use serde::Serialize;

/// Violations that are kept one by one; beyond that only their number.
const KEPT: usize = 1000;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A rule that drivers must keep.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Rule {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant,)+];

            /// Name in replies and documents.
            pub fn name(self) -> &'static str {
                match self { $(Rule::$variant => $name,)+ }
            }
        }
    };
}

rules! {
    /// The driver made the device use the bus while command bit 2 was 0.
    DmaWithoutMaster = "dma_without_bus_master",
    /// An address that the driver gave is not mapped for the device.
    DmaUnmapped = "dma_unmapped",
    /// A register access that no register has: size, alignment or place.
    MmioAccess = "mmio_bad_access",
    /// A write to a read-only register.
    MmioReadOnly = "mmio_write_read_only",
    /// Command queue or doorbell used while the initializing bit was 1.
    NotReady = "used_while_initializing",
    /// A software reset where there is none.
    ResetNotSupported = "reset_not_supported",
    /// A doorbell before the command queue address.
    NoQueue = "doorbell_without_queue",
    /// A doorbell for a slot whose descriptor belongs to software.
    NotOwned = "doorbell_without_ownership",
    /// A doorbell for a slot whose command has not completed.
    SlotBusy = "slot_reused",
    /// MANAGE_PAGES outside of the last slot, or another command in it.
    SlotClass = "wrong_slot_for_opcode",
    /// Descriptor type is not 7.
    DescriptorType = "descriptor_type",
    /// Reserved bits of descriptor or mailbox are set.
    DescriptorReserved = "descriptor_reserved",
    /// Signature of descriptor or mailbox is wrong.
    Signature = "signature",
    /// Token is 0, or not the same in descriptor and mailboxes.
    Token = "token",
    /// Mailbox block numbers do not count up from 0.
    BlockNumber = "mailbox_block_number",
    /// Mailbox pointer missing, misaligned, or present without need.
    MailboxPointer = "mailbox_pointer",
    /// Input or output length out of range.
    Length = "length",
    /// Reserved fields of a command are set.
    Reserved = "reserved_field",
    /// An opcode that the device does not have, or not with these capabilities.
    Opcode = "unknown_opcode_used",
    /// A command in a state of the device that does not allow it.
    Order = "command_order",
    /// A field of a command has a value that it must not have.
    Parameter = "bad_parameter",
    /// An object number that does not exist.
    UnknownObject = "unknown_object",
    /// A uid that no user context has, or an object that is another user's.
    User = "wrong_user",
    /// SET_HCA_CAP changes a field that is read-only.
    CapReadOnly = "cap_read_only",
    /// SET_HCA_CAP goes above the maximum.
    CapAboveMax = "cap_above_max",
    /// A page was given that the device already has.
    PageTwice = "page_given_twice",
    /// A page that is misaligned or at address 0.
    PageAddress = "page_address",
    /// More pages were given than the device asked for.
    PageNotRequested = "page_not_requested",
    /// The contents of a page changed while the device owned it.
    PageTouched = "page_touched_by_host",
    /// A page was unmapped from the device while it owned it.
    PageUnmapped = "page_unmapped_by_host",
    /// Memory for another purpose overlaps a page that the device owns.
    PageReused = "page_reused_by_host",
    /// DISABLE_HCA while the device still has pages.
    PagesLeft = "pages_left_at_disable",
    /// Objects (EQs, UARs, PDs, ...) left at TEARDOWN_HCA, or at DESTROY_UCTX.
    ObjectsLeft = "objects_left_at_teardown",
    /// An mkey destroyed, or its PD deallocated, while something uses it.
    MkeyInUse = "mkey_in_use",
    /// The driver made the device use an mkey in a way that the mkey does not allow.
    MkeyAccess = "mkey_access",
    /// A trace buffer that the device must not have: its size, its place or its mkey.
    TraceBuffer = "trace_buffer",
    /// Tracer registers written by a driver that knows that it does not own the tracer.
    TraceNotOwner = "trace_not_owner",
    /// The owner of the tracer asks for it again without a reason.
    TraceOwnerAgain = "trace_owner_again",
    /// An EQ buffer whose owner bits were not all 1 at CREATE_EQ.
    EqNotInitialised = "eq_not_initialised",
    /// Two EQs ask for the same event type.
    EqMaskOverlap = "eq_mask_overlap",
    /// An event found its EQ full.
    EqOverrun = "eq_overrun",
    /// A consumer index beyond the producer, or going back.
    EqConsumer = "eq_consumer_index",
    /// A doorbell for an EQ that does not exist, or through a UAR that is not its own.
    EqDoorbell = "eq_doorbell",
    /// A doorbell page (UAR) in use that was not allocated.
    UarNotAllocated = "uar_not_allocated",
}

/// A violation.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Violation {
    /// [`Rule::name`].
    pub rule: String,
    /// What was seen.
    pub detail: String,
}

/// All violations so far.
#[derive(Debug, Default)]
pub struct Checks {
    kept: Vec<Violation>,
    count: u64,
}

impl Checks {
    /// Records a violation.
    pub fn violate(&mut self, rule: Rule, detail: impl Into<String>) {
        let detail = detail.into();
        self.count += 1;
        if self.kept.len() < KEPT {
            warn!("violation of {}: {detail}", rule.name());
            self.kept.push(Violation {
                rule: rule.name().to_string(),
                detail,
            });
        } else if self.count == KEPT as u64 + 1 {
            warn!("more violations are only counted");
        }
    }

    /// Number of violations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first violations, in order.
    pub fn list(&self) -> &[Violation] {
        &self.kept
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
