// SPDX-License-Identifier: GPL-2.0

//! What devlink shows of a device, and does with it (M4.6).
//!
//! The instance is registered when everything else works, and gone before anything else goes (field
//! case C16). It stays while the device is down, or comes up again in place: people see what the last
//! bring-up found, and can ask for a recovery.
//!
//! Two reporters, named as upstream's: `fw`, for what firmware complains about and survives, and
//! `fw_fatal`, for what it does not. devlink decides whether a recovery follows, by the grace period and
//! the switch that people can set.

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};

use super::{
    recovery,
    state::State,
    Shared, //
};
use crate::{
    health::{
        buffer::{
            Entry,
            Report,
            Value, //
        },
        policy::Grace,
        Alert,
        What, //
    },
    kapi::{
        self,
        devlink::{
            ExtAck,
            Fmsg,
            FmsgArray,
            HealthReporter,
            Info,
            Operations,
            Registration,
            Reporter,
            Unregistered,
            Version, //
        },
        print::Show, //
    },
};

/// Beside the generic name, upstream's driver and the tools around it use this one.
const FW_VERSION: Version = Version::other(c"fw.version");

/// The device as a whole.
struct Whole<'a>(Arc<Shared<'a>>);

#[vtable]
impl Operations for Whole<'_> {
    fn info(&self, info: &mut Info<'_>, extack: &mut ExtAck<'_>) -> Result {
        let Some(found) = self.0.info() else {
            extack.set(fmt!("the device has not been up yet"));
            return Err(EAGAIN);
        };
        let psid = CString::try_from_fmt(fmt!("{}", found.board_id()))?;
        let firmware = CString::try_from_fmt(fmt!("{}", Show(found.firmware)))?;
        info.fixed(Version::FW_PSID, &psid)?;
        info.running(FW_VERSION, &firmware)?;
        info.running(Version::FW, &firmware)
    }

    fn reload_down(&self, _: &mut ExtAck<'_>) -> Result {
        // One that has failed is taken down by its recovery.
        if self.0.state() != State::Error {
            self.0.pause();
        }
        Ok(())
    }

    fn reload_up(&self, extack: &mut ExtAck<'_>) -> Result {
        let result = if self.0.state() == State::Error {
            self.0.recover()
        } else {
            self.0.start()
        };
        result.inspect_err(|_| {
            let state = Show(self.0.state());
            extack.set(fmt!("bring-up failed, the device's state is {state}"));
        })
    }
}

/// Puts a line of the health room's into a message.
fn put(fmsg: &mut Fmsg<'_>, entry: &Entry) -> Result {
    let name = match entry.name {
        // As upstream's driver has it.
        "raw fw_ver" => CString::try_from_fmt(fmt!("raw_fw_ver"))?,
        name => CString::try_from_fmt(fmt!("{name}"))?,
    };
    match entry.value {
        Value::Word(word) | Value::Number(word) => fmsg.u32(&name, word),
        Value::Half(half) => fmsg.u32(&name, half.into()),
        Value::Count(count) => fmsg.u64(&name, count),
        Value::Flag(flag) => fmsg.u8(&name, flag.into()),
        Value::Severity(severity) => fmsg.u8(&name, severity.level()),
        Value::Syndrome(syndrome) => fmsg.u8(&name, syndrome.0),
        Value::Version(fw) => {
            fmsg.text(&name, fmt!("{}.{}.{}", fw.major, fw.minor, fw.subminor))?;
        }
        Value::Text(text) => fmsg.text(&name, fmt!("{text}"))?,
    }
    Ok(())
}

/// Puts a health buffer into a message, by upstream's names.
fn put_buffer(fmsg: &mut Fmsg<'_>, report: &Report) -> Result {
    const VARS: &str = "assert_var[";

    let entries = report.entries();
    fmsg.object(c"health buffer", |fmsg| {
        fmsg.array(c"assert_var", |array: &mut FmsgArray<'_>| {
            for entry in entries.iter().filter(|e| e.name.starts_with(VARS)) {
                if let Value::Word(word) = entry.value {
                    array.u32(word);
                }
            }
            Ok(())
        })?;
        for entry in entries.iter().filter(|e| !e.name.starts_with(VARS)) {
            put(fmsg, entry)?;
        }
        Ok(())
    })
}

/// Puts an alert into a message.
fn put_alert(fmsg: &mut Fmsg<'_>, alert: &Alert) -> Result {
    fmsg.text(c"alert", fmt!("{}", Show(alert)))?;
    fmsg.u8(c"syndrome", alert.syndrome.0);
    fmsg.u32(c"fw_miss_counter", alert.misses);
    if let Some(report) = &alert.report {
        if !report.is_unreadable() {
            put_buffer(fmsg, report)?;
        }
    }
    Ok(())
}

/// Puts into a message what was reported, or else the last alert, and what there is beside it.
fn put_dump(fmsg: &mut Fmsg<'_>, shared: &Shared<'_>, event: Option<&Alert>) -> Result {
    let last = shared.health().last();
    match event.or(last.as_ref()) {
        Some(alert) => put_alert(fmsg, alert)?,
        None => fmsg.string(c"alert", c"none"),
    }
    fmsg.object(c"watchdog", |fmsg| put_watchdog(fmsg, shared))?;
    fmsg.object(c"lifecycle", |fmsg| {
        fmsg.text(c"state", fmt!("{}", Show(shared.state())))
    })
}

fn put_watchdog(fmsg: &mut Fmsg<'_>, shared: &Shared<'_>) -> Result {
    let mut result = Ok(());
    shared.health().diagnose(&mut |entry| {
        if result.is_ok() {
            result = put(fmsg, &entry);
        }
    });
    result
}

/// The reporter `fw`.
struct Fw<'a>(Arc<Shared<'a>>);

#[vtable]
impl HealthReporter for Fw<'_> {
    type Event = Alert;

    const NAME: &'static CStr = c"fw";

    fn diagnose(&self, fmsg: &mut Fmsg<'_>, _: &mut ExtAck<'_>) -> Result {
        put_watchdog(fmsg, &self.0)
    }

    fn dump(&self, fmsg: &mut Fmsg<'_>, event: Option<&Alert>, _: &mut ExtAck<'_>) -> Result {
        put_dump(fmsg, &self.0, event)
    }

    fn test(&self, extack: &mut ExtAck<'_>) -> Result {
        self.0.test().inspect_err(|_| {
            let state = Show(self.0.state());
            extack.set(fmt!(
                "firmware is not watched, the device's state is {state}"
            ));
        })
    }
}

/// The reporter `fw_fatal`.
struct FwFatal<'a>(Arc<Shared<'a>>);

#[vtable]
impl HealthReporter for FwFatal<'_> {
    type Event = Alert;

    const NAME: &'static CStr = c"fw_fatal";

    fn dump(&self, fmsg: &mut Fmsg<'_>, event: Option<&Alert>, _: &mut ExtAck<'_>) -> Result {
        put_dump(fmsg, &self.0, event)
    }

    fn recover(&self, _: Option<&Alert>, extack: &mut ExtAck<'_>) -> Result {
        self.0.recover().inspect_err(|_| {
            let state = Show(self.0.state());
            extack.set(fmt!("recovery failed, the device's state is {state}"));
        })
    }
}

/// Tells devlink of alerts.
struct Reporters<'a> {
    fw: Reporter<'a, Fw<'a>>,
    fatal: Reporter<'a, FwFatal<'a>>,
    shared: Arc<Shared<'a>>,
}

// The messages, which `trace-cmd` shows, are upstream's.
impl recovery::Reporter for Reporters<'_> {
    fn report(&self, alert: &Alert) {
        let message = match alert.what {
            What::Stall => c"FW miss counter reported",
            What::Test => c"test reported",
            _ => c"FW syndrome reported",
        };
        // Without a recovery there is nothing that could fail but for want of the instance, which
        // means that the device is on its way out.
        let _ = self.fw.report(message, alert);
        if alert.what == What::Test {
            self.settle();
        }
    }

    fn fatal(&self, alert: &Alert) -> Result {
        let pdev = self.shared.pdev();
        let result = self.fatal.report(c"FW fatal error reported", alert);
        match result {
            Err(ECANCELED) => dev_err!(
                pdev,
                "no recovery: the last one failed, or was less than a grace period ago\n"
            ),
            Ok(()) if self.shared.state() == State::Error => {
                dev_warn!(pdev, "no recovery: it is switched off\n");
            }
            _ => {}
        }
        result
    }

    fn settle(&self) {
        if self.shared.health().is_well() {
            self.fw.set_healthy();
        }
        if self.shared.state() == State::Up {
            self.fatal.set_healthy();
        }
    }
}

/// The device's part of devlink, until dropped.
pub(super) struct Devlink<'a> {
    registration: Registration<'a, Whole<'a>>,
    shared: Arc<Shared<'a>>,
}

impl<'a> Devlink<'a> {
    /// Lets people see a device that is up.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(shared: &Arc<Shared<'a>>) -> Result<Self> {
        let pdev = shared.pdev();
        let instance = Unregistered::new(pdev.as_ref(), Whole(shared.clone()))?;
        let ecpf = shared.info().is_some_and(|info| info.embedded_cpu);
        let grace = Grace::new(ecpf, kapi::pci::is_virtfn(pdev));
        let reporters = Reporters {
            fw: instance.reporter(Fw(shared.clone()), 0)?,
            fatal: instance.reporter(FwFatal(shared.clone()), grace.period_ms())?,
            shared: shared.clone(),
        };
        let reporters = Arc::new(reporters, GFP_KERNEL)?;
        let registration = instance.register();
        shared.set_reporter(Some(reporters));
        Ok(Self {
            registration,
            shared: shared.clone(),
        })
    }

    /// Shuts people out, and waits for what they began. A recovery among it gives way, if the worker
    /// has been dismissed before.
    pub(super) fn close(&self) {
        self.registration.unregister();
    }
}

impl Drop for Devlink<'_> {
    fn drop(&mut self) {
        // The reporters refer back to the device.
        self.shared.set_reporter(None);
    }
}
