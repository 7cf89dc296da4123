// SPDX-License-Identifier: GPL-2.0

//! The health buffer: what firmware leaves behind when it fails (hardware.md 1.1).
//!
//! The lines are worded as upstream's driver words them, because people and fleet monitors look for
//! these texts (field case C27).

use core::fmt;

use crate::{
    layouts::{
        own::CRR,
        segment::{
            HealthAsserts,
            HealthBuffer, //
        },
        HealthSyndrome, //
    },
    segment::decode::Firmware, //
};

/// Bytes of the health buffer.
pub const LEN: usize = HealthBuffer::LEN;

/// How bad it is: 0 (emergency) to 7 (debug), as in syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Severity(u8);

impl Severity {
    /// What a buffer without a valid severity has.
    pub const ERROR: Self = Self(3);

    const NAMES: [&'static str; 8] = [
        "EMERGENCY",
        "ALERT",
        "CRITICAL",
        "ERROR",
        "WARNING",
        "NOTICE",
        "INFO",
        "DEBUG",
    ];

    /// The level of the log, 0 to 7.
    pub fn level(self) -> u8 {
        self.0
    }

    /// What people read.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .get(usize::from(self.0))
            .copied()
            .unwrap_or("ERROR")
    }
}

/// What a syndrome means, in the words that people look for.
pub fn description(syndrome: HealthSyndrome) -> &'static str {
    match syndrome {
        HealthSyndrome(0) => "no error",
        HealthSyndrome::FW_INTERNAL_ERR => "firmware internal error",
        HealthSyndrome::DEAD_IRISC => "irisc not responding",
        HealthSyndrome::HW_FATAL_ERR => "unrecoverable hardware error",
        HealthSyndrome::FW_CRC_ERR => "firmware CRC error",
        HealthSyndrome::ICM_FETCH_PCI_ERR => "ICM fetch PCI error",
        HealthSyndrome::ICM_PAGE_ERR => "HW fatal error",
        HealthSyndrome::ASYNCHRONOUS_EQ_BUF_OVERRUN => "async EQ buffer overrun",
        HealthSyndrome::EQ_IN_ERR => "EQ error",
        HealthSyndrome::EQ_INV => "Invalid EQ referenced",
        HealthSyndrome::FFSER_ERR => "FFSER error",
        HealthSyndrome::HIGH_TEMP_ERR => "High temperature",
        HealthSyndrome::ICM_PCI_POISONED_ERR => "ICM fetch PCI data poisoned error",
        HealthSyndrome::TRUST_LOCKDOWN_ERR => "Trust lockdown error",
        _ => "unrecognized error",
    }
}

/// One value of a report or a diagnosis, with the form in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A word, shown with eight hexadecimal digits.
    Word(u32),
    /// Half a word, shown with four.
    Half(u16),
    /// A number, shown in decimal.
    Number(u32),
    /// A flag, shown as 0 or 1.
    Flag(bool),
    /// A severity, shown with its name.
    Severity(Severity),
    /// A syndrome, shown with what it means.
    Syndrome(HealthSyndrome),
    /// A firmware version, as the segment has it.
    Version(Firmware),
    /// Words.
    Text(&'static str),
    /// A number that may be large, shown in decimal.
    Count(u64),
}

/// One line of a report or a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is called.
    pub name: &'static str,
    /// What it is.
    pub value: Value,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.value {
            Value::Word(word) => write!(f, "{name} {word:#010x}"),
            Value::Half(half) => write!(f, "{name} {half:#06x}"),
            Value::Number(number) => write!(f, "{name} {number}"),
            Value::Flag(flag) => write!(f, "{name} {}", u8::from(flag)),
            Value::Severity(severity) => {
                write!(f, "{name} {} ({})", severity.level(), severity.name())
            }
            Value::Syndrome(syndrome) => {
                write!(f, "{name} {:#x}: {}", syndrome.0, description(syndrome))
            }
            Value::Text(text) => write!(f, "{name} {text}"),
            Value::Count(count) => write!(f, "{name} {count}"),
            // Not as `Firmware` is shown elsewhere: upstream does not pad.
            Value::Version(fw) => write!(f, "{name} {}.{}.{}", fw.major, fw.minor, fw.subminor),
        }
    }
}

/// A copy of the health buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    bytes: [u8; LEN],
    firmware: Firmware,
}

impl Report {
    /// A report of what was read; `firmware` is what the segment says.
    pub fn new(bytes: [u8; LEN], firmware: Firmware) -> Self {
        Self { bytes, firmware }
    }

    fn view(&self) -> HealthBuffer<&[u8; LEN]> {
        HealthBuffer::view(&self.bytes)
    }

    /// Whether the device did not answer when the buffer was read.
    pub fn is_unreadable(&self) -> bool {
        self.view().fw_version() == u32::MAX
    }

    /// What went wrong.
    pub fn syndrome(&self) -> HealthSyndrome {
        HealthSyndrome(self.view().synd())
    }

    /// More about it. The values have no public meaning.
    pub fn ext_syndrome(&self) -> u16 {
        self.view().ext_synd()
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        let view = self.view();
        if view.valid() {
            Severity(view.severity())
        } else {
            Severity::ERROR
        }
    }

    /// Firmware asks for a reset: it does not recover by itself.
    pub fn wants_reset(&self) -> bool {
        self.view().rfr()
    }

    /// No reset helps but that of a power cycle.
    pub fn wants_cold_reset(&self) -> bool {
        CRR.get(&self.bytes) == Some(1)
    }

    /// Everything that the buffer holds, in upstream's order.
    pub fn entries(&self) -> [Entry; 18] {
        let view = self.view();
        let vars = HealthAsserts::of(&self.bytes).map_or([0; 6], |asserts| asserts.assert_var());
        let entry = |name, value| Entry { name, value };
        let word = |name, word| entry(name, Value::Word(word));
        let [v0, v1, v2, v3, v4, v5] = vars;
        [
            word("assert_var[0]", v0),
            word("assert_var[1]", v1),
            word("assert_var[2]", v2),
            word("assert_var[3]", v3),
            word("assert_var[4]", v4),
            word("assert_var[5]", v5),
            word("assert_exit_ptr", view.assert_existptr()),
            word("assert_callra", view.assert_callra()),
            entry("fw_ver", Value::Version(self.firmware)),
            entry("time", Value::Number(view.time())),
            word("hw_id", view.hw_id()),
            entry("rfr", Value::Flag(self.wants_reset())),
            entry("crr", Value::Flag(self.wants_cold_reset())),
            entry("severity", Value::Severity(self.severity())),
            entry("irisc_index", Value::Number(view.irisc_index().into())),
            entry("synd", Value::Syndrome(self.syndrome())),
            entry("ext_synd", Value::Half(self.ext_syndrome())),
            word("raw fw_ver", view.fw_version()),
        ]
    }

    /// The line above all others.
    pub fn heading(&self) -> impl fmt::Display {
        struct Heading(Report);
        impl fmt::Display for Heading {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let severity = self.0.severity();
                write!(
                    f,
                    "Health issue observed, {}, severity({}) {}:",
                    description(self.0.syndrome()),
                    severity.level(),
                    severity.name()
                )
            }
        }
        Heading(*self)
    }
}

#[mlx5_rs_macros::suite(mlx5_rs_health_buffer)]
mod tests {
    use super::*;
    use core::fmt::Write;

    const FIRMWARE: Firmware = Firmware {
        major: 28,
        minor: 43,
        subminor: 1000,
        cmd_interface_rev: 5,
    };

    fn report(fill: impl FnOnce(&mut [u8; LEN])) -> Report {
        let mut bytes = [0; LEN];
        fill(&mut bytes);
        Report::new(bytes, FIRMWARE)
    }

    /// Compares what is printed with `want` without memory of its own.
    struct Expect<'a> {
        rest: &'a str,
    }

    impl Write for Expect<'_> {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            self.rest = self.rest.strip_prefix(s).ok_or(fmt::Error)?;
            Ok(())
        }
    }

    fn prints(what: &dyn fmt::Display, want: &str) -> bool {
        let mut expect = Expect { rest: want };
        write!(expect, "{what}").is_ok() && expect.rest.is_empty()
    }

    #[test]
    fn every_field_in_its_place() {
        let report = report(|b| {
            for (i, byte) in b.iter_mut().enumerate() {
                *byte = i as u8;
            }
            // rfr, valid, severity 2.
            b[0x38] = 0x8a;
        });
        let want = [
            "assert_var[0] 0x00010203",
            "assert_var[1] 0x04050607",
            "assert_var[2] 0x08090a0b",
            "assert_var[3] 0x0c0d0e0f",
            "assert_var[4] 0x10111213",
            "assert_var[5] 0x14151617",
            "assert_exit_ptr 0x20212223",
            "assert_callra 0x24252627",
            "fw_ver 28.43.1000",
            "time 741158447",
            "hw_id 0x34353637",
            "rfr 1",
            "crr 0",
            "severity 2 (CRITICAL)",
            "irisc_index 60",
            "synd 0x3d: unrecognized error",
            "ext_synd 0x3e3f",
            "raw fw_ver 0x30313233",
        ];
        for (entry, want) in report.entries().iter().zip(want) {
            assert!(prints(entry, want));
        }
        assert!(prints(
            &report.heading(),
            "Health issue observed, unrecognized error, severity(2) CRITICAL:"
        ));
    }

    #[test]
    fn syndromes_of_the_fact_sheet() {
        // hardware.md 1.1.
        let table: [(u8, &str, &str); 13] = [
            (0x01, "FW_INTERNAL_ERR", "firmware internal error"),
            (0x07, "DEAD_IRISC", "irisc not responding"),
            (0x08, "HW_FATAL_ERR", "unrecoverable hardware error"),
            (0x09, "FW_CRC_ERR", "firmware CRC error"),
            (0x0a, "ICM_FETCH_PCI_ERR", "ICM fetch PCI error"),
            (0x0b, "ICM_PAGE_ERR", "HW fatal error"),
            (
                0x0c,
                "ASYNCHRONOUS_EQ_BUF_OVERRUN",
                "async EQ buffer overrun",
            ),
            (0x0d, "EQ_IN_ERR", "EQ error"),
            (0x0e, "EQ_INV", "Invalid EQ referenced"),
            (0x0f, "FFSER_ERR", "FFSER error"),
            (0x10, "HIGH_TEMP_ERR", "High temperature"),
            (
                0x12,
                "ICM_PCI_POISONED_ERR",
                "ICM fetch PCI data poisoned error",
            ),
            (0x13, "TRUST_LOCKDOWN_ERR", "Trust lockdown error"),
        ];
        assert_eq!(HealthSyndrome::ALL.len(), table.len());
        for (number, name, text) in table {
            let report = report(|b| b[0x3d] = number);
            assert_eq!(report.syndrome().name(), Some(name));
            assert_eq!(description(report.syndrome()), text);
        }
        for number in [0x02, 0x11, 0x14, 0xff] {
            let report = report(|b| b[0x3d] = number);
            assert_eq!(description(report.syndrome()), "unrecognized error");
        }
    }

    #[test]
    fn severities() {
        let names = [
            "EMERGENCY",
            "ALERT",
            "CRITICAL",
            "ERROR",
            "WARNING",
            "NOTICE",
            "INFO",
            "DEBUG",
        ];
        for (level, name) in (0_u8..).zip(names) {
            let valid = report(|b| b[0x38] = 0x08 | level);
            assert_eq!(valid.severity().level(), level);
            assert_eq!(valid.severity().name(), name);
            // Without the valid bit the number means nothing.
            let invalid = report(|b| b[0x38] = level);
            assert_eq!(invalid.severity(), Severity::ERROR);
        }
    }

    #[test]
    fn flags() {
        for (byte, rfr, crr) in [(0, false, false), (0x80, true, false), (0x40, false, true)] {
            let report = report(|b| b[0x38] = byte);
            assert_eq!(report.wants_reset(), rfr);
            assert_eq!(report.wants_cold_reset(), crr);
            assert!(!report.is_unreadable());
        }
        assert!(report(|b| *b = [0xff; LEN]).is_unreadable());
    }
}
