// SPDX-License-Identifier: GPL-2.0

//! What an event queue entry says (hardware.md 3.3).
//!
//! Every entry decodes to something: what has no meaning here is [`Event::Other`].

use crate::layouts::{
    events::{
        Eqe,
        EqeCmd,
        EqeComp,
        EqeCqErr,
        EqeDct,
        EqePageReq,
        EqePortState,
        EqeQpSrq,
        EqeVhcaState,
        EqeXrqErr, //
    },
    EventType, //
};

/// Bytes of an entry.
pub const EQE: usize = Eqe::LEN;

/// Offset of the owner byte.
pub const OWNER_OFFSET: usize = Eqe::OWNER.offset / 8;

/// Numbers of queues and the like have 24 bits.
const MASK_24: u32 = 0x00ff_ffff;

/// `ec_function` flags of a page request (hardware.md 2.5).
const PAGE_REQ_EC: u16 = 1 << 15;
const PAGE_REQ_RELEASE_ALL: u16 = 1 << 14;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A completion queue has an entry.
    Completion {
        /// Completion queue number.
        cqn: u32,
    },
    /// Commands are done.
    Command {
        /// One bit for each slot.
        slots: u32,
    },
    /// Firmware wants pages, or to give them back.
    PageRequest {
        /// Function id.
        function: u16,
        /// It is a function of the embedded CPU.
        embedded_cpu: bool,
        /// All pages of the function are free, without a command.
        release_all: bool,
        /// Pages wanted, negative to give back.
        num_pages: i32,
    },
    /// A port changed.
    PortChange {
        /// Port number.
        port: u8,
        /// What changed (1 down, 4 active, 5 initialized, ...).
        change: u8,
    },
    /// Something happened to a queue pair, receive queue or send queue.
    Queue {
        /// What.
        what: EventType,
        /// 0 QP, 1 RQ, 2 SQ, 6 DCT.
        queue_type: u8,
        /// Queue number.
        qpn: u32,
    },
    /// Something happened to a shared receive queue.
    Srq {
        /// What.
        what: EventType,
        /// SRQ number.
        srqn: u32,
    },
    /// A completion queue failed.
    CqError {
        /// Completion queue number.
        cqn: u32,
        /// Why.
        syndrome: u8,
    },
    /// An XRQ failed.
    XrqError {
        /// XRQ number.
        xrqn: u32,
        /// What kind of error.
        error: u8,
    },
    /// A DC target is drained, or somebody used a wrong access key.
    Dct {
        /// Which of the two.
        what: EventType,
        /// DCT number.
        dctn: u32,
    },
    /// Functions of the host came or went.
    EswFunctionsChanged,
    /// A vHCA changed its state.
    VhcaState {
        /// Function id.
        function: u16,
        /// It is a function of the embedded CPU.
        embedded_cpu: bool,
    },
    /// The firmware tracer.
    Tracer {
        /// 0 ownership change, 1 traces available, 2 string database update.
        what: u8,
    },
    /// Firmware found an error in itself.
    InternalError,
    /// Anything else.
    Other {
        /// Event type.
        what: EventType,
        /// Event subtype.
        sub_type: u8,
    },
}

impl Event {
    /// Decodes an entry that belongs to software.
    pub fn decode(entry: &[u8; EQE]) -> Self {
        let eqe = Eqe::view(entry);
        let what = EventType(eqe.r#type());
        let sub_type = eqe.sub_type();
        let data = eqe.data();
        let other = Self::Other { what, sub_type };
        // No payload is longer than the data: `of` never fails here.
        match what {
            EventType::COMP => EqeComp::of(data).map(|d| Self::Completion {
                cqn: d.cqn() & MASK_24,
            }),
            EventType::CMD => EqeCmd::of(data).map(|d| Self::Command { slots: d.vector() }),
            EventType::PAGE_REQUEST => EqePageReq::of(data).map(|d| Self::PageRequest {
                function: d.func_id(),
                embedded_cpu: d.ec_function() & PAGE_REQ_EC != 0,
                release_all: d.ec_function() & PAGE_REQ_RELEASE_ALL != 0,
                num_pages: d.num_pages(),
            }),
            EventType::PORT_CHANGE => EqePortState::of(data).map(|d| Self::PortChange {
                port: d.port() >> 4,
                change: sub_type,
            }),
            EventType::PATH_MIG
            | EventType::COMM_EST
            | EventType::SQ_DRAINED
            | EventType::SRQ_LAST_WQE
            | EventType::WQ_CATAS_ERROR
            | EventType::PATH_MIG_FAILED
            | EventType::WQ_INVAL_REQ_ERROR
            | EventType::WQ_ACCESS_ERROR => EqeQpSrq::of(data).map(|d| Self::Queue {
                what,
                queue_type: d.r#type(),
                qpn: d.qp_srq_n() & MASK_24,
            }),
            EventType::SRQ_RQ_LIMIT | EventType::SRQ_CATAS_ERROR => {
                EqeQpSrq::of(data).map(|d| Self::Srq {
                    what,
                    srqn: d.qp_srq_n() & MASK_24,
                })
            }
            EventType::CQ_ERROR => EqeCqErr::of(data).map(|d| Self::CqError {
                cqn: d.cqn() & MASK_24,
                syndrome: d.syndrome(),
            }),
            EventType::XRQ_ERROR => EqeXrqErr::of(data).map(|d| Self::XrqError {
                xrqn: d.type_xrqn() & MASK_24,
                error: (d.type_xrqn() >> 24) as u8,
            }),
            EventType::DCT_DRAINED | EventType::DCT_KEY_VIOLATION => {
                EqeDct::of(data).map(|d| Self::Dct {
                    what,
                    dctn: d.dctn() & MASK_24,
                })
            }
            EventType::ESW_FUNCTIONS_CHANGED => Some(Self::EswFunctionsChanged),
            EventType::VHCA_STATE_CHANGE => EqeVhcaState::of(data).map(|d| Self::VhcaState {
                function: d.function_id(),
                embedded_cpu: d.ec_function() != 0,
            }),
            EventType::DEVICE_TRACER => Some(Self::Tracer { what: sub_type }),
            EventType::INTERNAL_ERROR => Some(Self::InternalError),
            _ => None,
        }
        .unwrap_or(other)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_eq_eqe)]
mod tests {
    use super::*;

    fn entry(what: u8, sub_type: u8, at: usize, bytes: &[u8]) -> [u8; EQE] {
        let mut entry = [0; EQE];
        entry[1] = what;
        entry[3] = sub_type;
        for (to, from) in entry.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
        entry
    }

    // Offsets as hardware.md 3.3 gives them, counted from the start of the entry.
    #[test]
    fn payloads() {
        for (bytes, want) in [
            (
                entry(0x00, 0, 0x38, &[0xff, 1, 2, 3]),
                Event::Completion { cqn: 0x010203 },
            ),
            (
                entry(0x0a, 0, 0x20, &[0x80, 0, 0, 1]),
                Event::Command { slots: 0x8000_0001 },
            ),
            (
                entry(0x0b, 0, 0x20, &[0xc0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]),
                Event::PageRequest {
                    function: 7,
                    embedded_cpu: true,
                    release_all: true,
                    num_pages: -1,
                },
            ),
            (
                entry(0x09, 4, 0x28, &[0x10]),
                Event::PortChange { port: 1, change: 4 },
            ),
            (
                entry(0x05, 0, 0x34, &[2, 0, 0, 0, 0, 0, 0, 9]),
                Event::Queue {
                    what: EventType(5),
                    queue_type: 2,
                    qpn: 9,
                },
            ),
            (
                entry(0x14, 0, 0x38, &[0, 0, 1, 0]),
                Event::Srq {
                    what: EventType(0x14),
                    srqn: 0x100,
                },
            ),
            (
                entry(0x04, 0, 0x20, &[0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]),
                Event::CqError {
                    cqn: 5,
                    syndrome: 1,
                },
            ),
            (
                entry(0x18, 0, 0x34, &[3, 0, 0, 8]),
                Event::XrqError { xrqn: 8, error: 3 },
            ),
            (
                entry(0x1d, 0, 0x38, &[0, 0, 0, 6]),
                Event::Dct {
                    what: EventType(0x1d),
                    dctn: 6,
                },
            ),
            (
                entry(0x0f, 0, 0x20, &[0, 1, 0, 2]),
                Event::VhcaState {
                    function: 2,
                    embedded_cpu: true,
                },
            ),
            (entry(0x26, 1, 0, &[]), Event::Tracer { what: 1 }),
        ] {
            assert_eq!(Event::decode(&bytes), want);
        }
    }

    #[test]
    fn unknown_types_keep_their_number() {
        assert_eq!(
            Event::decode(&entry(0xee, 0x12, 0, &[])),
            Event::Other {
                what: EventType(0xee),
                sub_type: 0x12
            }
        );
    }
}
