// SPDX-License-Identifier: GPL-2.0

//! Work queue elements: building, checking and reading them (hardware.md 5).
//!
//! The room is pure: it knows bytes, not memory of the device or doorbells. It owns the rules of what
//! a legal WQE is; [`layouts::wqe`](crate::layouts::wqe) owns where its fields are. Whoever posts to a
//! queue pair calls it with the memory of the queue, and writes the doorbell itself.
//!
//! - [`SendQueue`] is a queue of a [transport](Transport) in its memory; [`SendQueue::start`] begins
//!   a [`Wqe`], which is written segment by segment and counts once it is finished.
//! - What a WQE is made of has a file for each kind: [`ctrl`], [`address`], [`eth`], [`atomic`] and
//!   [`semaphore`], [`number`] (places in memory), [`umr`] with [`mkey`] and [`xlt`], [`psv`].
//! - Whatever is refused is a [`Violation`]: segment, byte offset, field, value, what was expected.
//!
//! # Example
//!
//! ```
//! use mlx5_pure::wqe::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config {
//!     qpn: Number::low(0x42),
//!     pd: Number::low(7),
//!     signed: false,
//!     caps: Caps::ALL,
//! };
//! let mut memory = [[0; BLOCK]; 16];
//! let mut queue = SendQueue::<Rc>::new(&mut memory, &config, Producer::default())?;
//!
//! let posted = queue
//!     .start(Flags::SIGNALED)?
//!     .write(Remote { addr: 0x1000, rkey: 0x77 })
//!     .data(Sge::new(0x2000, 0x66, 4096)?)
//!     .finish()?;
//! assert_eq!((posted.index, posted.ds), (0, 3));
//! // The doorbell record says `posted.next`, the doorbell register gets `posted.doorbell`.
//! assert_eq!(posted.next, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What does not compile
//!
//! A datagram without an address:
//!
//! ```compile_fail,E0599
//! # use mlx5_pure::wqe::*;
//! fn send(queue: &mut SendQueue<'_, Ud>) {
//!     let _ = queue.start(Flags::NONE).unwrap().send();
//! }
//! ```
//!
//! A remote address in a NOP, a UMR or a SET_PSV, or an RDMA read with inline data:
//!
//! ```compile_fail,E0599
//! # use mlx5_pure::wqe::*;
//! fn nop(queue: &mut SendQueue<'_, Rc>) {
//!     let _ = queue.start(Flags::NONE).unwrap().nop().write(Remote::default());
//! }
//! ```
//!
//! ```compile_fail,E0599
//! # use mlx5_pure::wqe::*;
//! fn read(queue: &mut SendQueue<'_, Rc>) {
//!     let _ = queue.start(Flags::NONE).unwrap().read(Remote::default()).inline(&[1]);
//! }
//! ```
//!
//! A VLAN tag together with an inline header: [`eth::Header`] is one or the other. An offset of
//! translations together with a BSF: [`umr::Place`] is one or the other. An atomic without the place
//! for its result, or of a size that there is not:
//!
//! ```compile_fail,E0277
//! # use mlx5_pure::wqe::*;
//! fn atomic(queue: &mut SendQueue<'_, Rc>, operands: &MaskedFetchAdd<2>) {
//!     let wqe = queue.start(Flags::NONE).unwrap();
//!     let _ = wqe.masked_fetch_add(Remote::default(), operands, Local::default());
//! }
//! ```
//!
//! An RDMA read on a queue without reads:
//!
//! ```compile_fail,E0277
//! # use mlx5_pure::wqe::*;
//! fn read(queue: &mut SendQueue<'_, Uc>) {
//!     let _ = queue.start(Flags::NONE).unwrap().read(Remote::default());
//! }
//! ```

pub mod address;
pub mod atomic;
pub mod build;
pub mod caps;
pub mod ctrl;
pub mod dump;
pub mod eth;
pub mod mkey;
pub mod number;
pub mod parse;
pub mod psv;
pub mod queue;
mod quick;
pub mod segment;
pub mod semantics;
pub mod semaphore;
pub mod transport;
pub mod umr;
pub mod units;
pub mod validate;
pub mod violation;
mod wait;
pub mod xlt;

use crate::layouts::ifc;

/// Bytes of a basic block: WQEs begin at multiples of it.
pub const BLOCK: usize = ifc::MLX5_SEND_WQE_BB as usize;

/// Bytes of the unit that lengths of WQEs count.
pub const UNIT: usize = ifc::MLX5_SEND_WQE_DS as usize;

/// Most units of a WQE: the field has 6 bits.
pub const MAX_DS: usize = ifc::MLX5_WQE_CTRL_DS_MASK as usize;

pub use address::{
    AddressHandle,
    Datagram,
    DcTarget,
    Grh,
    Path, //
};
pub use atomic::{
    write_is_atomic,
    AtomicOps,
    MaskedCompareSwap,
    MaskedFetchAdd,
    Receiver, //
};
pub use build::Wqe;
pub use caps::Caps;
pub use ctrl::{
    Completion,
    Fence,
    Flags, //
};
pub use dump::{
    Json,
    Text, //
};
pub use eth::{
    Association,
    Checksums,
    Eth,
    Header,
    Lso,
    SoftwareParser,
    Trailer,
    Vlan,
    VlanType, //
};
pub use mkey::{
    Access,
    AccessMode,
    MkeyMask,
    MkeyPatch, //
};
pub use number::{
    Local,
    Number,
    Remote,
    Sge, //
};
pub use psv::{
    Bsf,
    Dif,
    Flow,
    NvmeTcpProgress,
    Psv,
    SetPsv,
    TlsProgress,
    TlsStatic, //
};
pub use queue::{
    Block,
    Config,
    Posted,
    Producer,
    SendQueue, //
};
pub use segment::Segment;
pub use semaphore::{
    Semaphore,
    Width, //
};
pub use transport::{
    Dci,
    Raw,
    Rc,
    RegUmr,
    Transport,
    TransportKind,
    Uc,
    Ud,
    UdOffload,
    Xrc, //
};
pub use umr::{
    Check,
    Place,
    Umr, //
};
pub use units::Units;
pub use validate::{
    first_violation,
    validate,
    validate_segment,
    Context, //
};
pub use violation::{
    Expected,
    Refusal,
    Violation, //
};
pub use xlt::{
    Klm,
    Ksm,
    List,
    Octowords,
    Page,
    Stride,
    StrideBlock,
    Translations, //
};
