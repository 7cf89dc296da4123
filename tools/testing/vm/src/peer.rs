// SPDX-License-Identifier: GPL-2.0
//! Field cases on two drivers: the kernel's own mlx5_core, and mlx5_rs, each
//! with the same model in the same trouble. What comes of it is read from
//! outside: how long things take, whether they end, what the kernel says, what
//! the device still holds, and whether it can be bound again.

use crate::agent::{GuestError, Pending};
use crate::klog;
use crate::manifest::{Kernel, Manifest};
use crate::process::wait_until;
use crate::qemu::Hardware;
use crate::vm::{Boot, DeviceId, Mark, Vm, DRIVER};
use anyhow::{bail, ensure, Context, Result};
use mlx5_agent::proto::{Call, Reply, WriteMode};
use mlx5_model::device::State;
use std::time::{Duration, Instant};

/// The kernel's own driver.
pub const PEER: &str = "mlx5_core";

/// The kernel's module that injects bus errors.
pub const INJECTOR: &str = "aer_inject";

/// What the device says of itself: how long its commands may take, and, not
/// being 0, that it says so (0xff8 and 0xffc of the initialization segment; in
/// milliseconds). Drivers then ask for all other times, too.
const TIMES: &[&str] = &[
    "initseg field=cmd_exec_to value=1000",
    "initseg field=cmd_q_init_to value=2000",
];

/// How long each step may take before the trouble is mended, and again after
/// that. mlx5_core waits for a command 6 s in all, with those [`TIMES`].
const LIMIT: Duration = Duration::from_secs(10);

/// What happens to a device and its driver, one after the other.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A request to the model, without a word about it.
    Tell(&'static str),
    /// The driver is bound.
    Bind,
    /// The driver is unbound.
    Unbind,
    /// A command that somebody asks for.
    Query,
    /// As many at once.
    Queries(usize),
    /// One that nobody waits for.
    Begin,
    /// The function is reset through sysfs.
    Reset,
    /// A fatal bus error, and the kernel's recovery from it.
    BusError,
    /// Until no command is in flight any more.
    Settle,
    /// Until the device has this many pages more than before the first step
    /// but for those of bring-up.
    Extra(usize),
    /// Until the driver says by itself that something is wrong.
    Notice,
}
use Step::{Begin, Bind, BusError, Extra, Notice, Queries, Query, Reset, Settle, Tell, Unbind};

/// A field case.
#[derive(Debug)]
pub struct Scenario {
    /// Its number in docs/field-cases.md.
    pub case: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    steps: &'static [Step],
    /// Ends the trouble.
    mend: &'static [&'static str],
    /// The device is then another one, to be found by a scan of the bus.
    replaced: bool,
}

const fn case(
    case: &'static str,
    what: &'static str,
    steps: &'static [Step],
    mend: &'static [&'static str],
) -> Scenario {
    Scenario {
        case,
        what,
        steps,
        mend,
        replaced: false,
    }
}

/// All of them; the first ones are quick.
pub const SCENARIOS: &[Scenario] = &[
    case(
        "C3",
        "the interrupt of a command is lost",
        &[Bind, Tell("fault op=QUERY_ADAPTER act=drop_irq"), Query],
        &[],
    ),
    case(
        "C15",
        "a kernel before this one left the device running",
        &[Tell("stale pages=100 eqs=3"), Bind],
        &[],
    ),
    case(
        "C1",
        "a command of bring-up is never answered",
        &[Tell("fault op=CREATE_EQ act=never"), Bind],
        &["faults clear"],
    ),
    case(
        "C1",
        "31 commands are never answered, then one more",
        &[
            Bind,
            Tell("fault op=QUERY_ADAPTER count=inf act=never"),
            Queries(31),
            Query,
        ],
        &["faults clear"],
    ),
    case(
        "C2",
        "a command is answered after 7 s, when nobody waits any more",
        &[
            Bind,
            Tell("fault op=QUERY_ADAPTER act=late ms=7000"),
            Query,
            Settle,
            Query,
        ],
        &[],
    ),
    case(
        "C6",
        "unbound while a command hangs",
        &[
            Bind,
            Tell("fault op=QUERY_ADAPTER act=never"),
            Begin,
            Unbind,
        ],
        &["faults clear"],
    ),
    case(
        "C11",
        "firmware is ready after 3 s",
        &[Tell("initializing ms=3000"), Bind],
        &[],
    ),
    case(
        "C11",
        "the device is gone when its firmware is waited for",
        &[Tell("ones on"), Bind],
        &["ones off"],
    ),
    case(
        "C12",
        "the device hangs, every read is all ones",
        &[Bind, Tell("ones on"), Query, Unbind],
        &["ones off"],
    ),
    case(
        "C14",
        "QUERY_PAGES answers less than nothing",
        &[Tell("pages boot=-1 init=-7"), Bind],
        &["pages boot=320 init=914"],
    ),
    case(
        "C19",
        "firmware dies at INIT_HCA",
        &[Tell("fault op=INIT_HCA act=fatal"), Bind],
        &["health clear"],
    ),
    case(
        "C19",
        "firmware dies at the first command of teardown",
        &[Bind, Tell("fault op=* act=fatal"), Unbind],
        &["health clear"],
    ),
    case(
        "C20",
        "TEARDOWN_HCA is never answered",
        &[
            Bind,
            Tell("fault op=TEARDOWN_HCA count=inf act=never"),
            Unbind,
        ],
        &["faults clear"],
    ),
    case(
        "C22",
        "a fatal bus error is reported",
        &[Bind, BusError, Query],
        &[],
    ),
    Scenario {
        case: "C23",
        what: "the device is pulled out",
        steps: &[Bind, Tell("vanish"), Unbind],
        mend: &["vanish off"],
        replaced: true,
    },
    case(
        "C24",
        "firmware dies while nothing is asked of it",
        &[Bind, Tell("fatal"), Notice],
        &["health clear"],
    ),
    case(
        "C24",
        "firmware's health counter stops, and it says nothing",
        &[Bind, Tell("health counter=stop"), Notice],
        &["health clear"],
    ),
    case(
        "C46",
        "pages come and are released all at once",
        &[
            Bind,
            Tell("page_request function=5 npages=700"),
            Extra(700),
            Tell("page_request function=5 release_all=1"),
            Extra(0),
        ],
        &[],
    ),
    case(
        "M1.6",
        "the function is reset while bound",
        &[Bind, Reset, Query],
        &[],
    ),
];

/// How a step ended.
enum End {
    /// Well.
    Done,
    /// With an error, in the kernel's words.
    Failed(String),
    /// Not yet.
    Hangs,
}

/// What came of a scenario.
#[derive(Debug, Default)]
pub struct Outcome {
    /// In few words, one entry for each step.
    pub words: Vec<String>,
    /// Why no driver should do so.
    pub faults: Vec<String>,
    /// The guest cannot be used any more.
    pub spent: bool,
}

impl Outcome {
    fn say(&mut self, what: &str, took: Duration, end: &End) {
        let seconds = took.as_secs_f32();
        self.words.push(match end {
            End::Done => format!("{what} {seconds:.1} s"),
            End::Failed(why) => format!("{what} failed after {seconds:.1} s ({why})"),
            End::Hangs => format!("{what} not over after {seconds:.1} s"),
        });
    }
}

/// One driver in one scenario.
struct Trial<'a> {
    vm: &'a mut Vm,
    id: DeviceId,
    driver: &'static str,
    scenario: &'static Scenario,
    mended: bool,
    /// Pages of the device after bring-up.
    pages: usize,
    begun: Vec<Pending>,
    outcome: Outcome,
}

/// The words for an errno.
fn reason(error: &GuestError) -> String {
    match error.errno() {
        Some(errno) => {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            text.split(" (os error").next().unwrap_or("?").to_owned()
        }
        None => error.to_string(),
    }
}

/// Writes to a file.
fn write(path: String, data: &[u8]) -> Call {
    Call::WriteFile {
        path,
        mode: WriteMode::Existing,
        data: data.into(),
    }
}

impl Trial<'_> {
    fn limit(&self) -> Duration {
        match self.vm.manifest().kernel {
            Kernel::Test | Kernel::Debian => LIMIT,
            Kernel::Kasan => self.vm.scaled(LIMIT),
        }
    }

    /// Waits for an answer; mends the trouble if there is none in time.
    fn wait(&mut self, what: &str, start: Instant, pending: &Pending) -> Result<Option<Reply>> {
        loop {
            let end = match pending.wait(self.limit()) {
                Ok(reply) => {
                    self.outcome.say(what, start.elapsed(), &End::Done);
                    return Ok(Some(reply));
                }
                Err(GuestError::Timeout(_)) => End::Hangs,
                Err(error @ GuestError::Failed(_)) => End::Failed(reason(&error)),
                Err(error) => return Err(error.into()),
            };
            self.outcome.say(what, start.elapsed(), &end);
            if !matches!(end, End::Hangs) {
                return Ok(None);
            }
            if self.mended {
                self.outcome.spent = true;
                self.outcome.faults.push(format!("{what} does not end"));
                bail!("{what} does not end");
            }
            self.outcome.words.push("(mended)".into());
            self.mend()?;
        }
    }

    /// Carries a request out, and says how long it took.
    fn timed(&mut self, what: &str, call: Call) -> Result<bool> {
        let start = Instant::now();
        let pending = self.vm.agent().start(call)?;
        Ok(self.wait(what, start, &pending)?.is_some())
    }

    fn mend(&mut self) -> Result<()> {
        if !self.mended {
            self.mended = true;
            for request in self.scenario.mend {
                self.vm.model(self.id)?.run(request)?;
            }
        }
        Ok(())
    }

    fn file(&self, action: &str) -> String {
        format!("/sys/bus/pci/drivers/{}/{action}", self.driver)
    }

    fn bind(&mut self, what: &str) -> Result<bool> {
        let bdf = self.vm.bdf(self.id);
        let bound = self.timed(what, write(self.file("bind"), bdf.as_bytes()))?;
        self.pages = self.vm.model(self.id)?.status()?.pages.given;
        Ok(bound)
    }

    fn unbind(&mut self, what: &str) -> Result<bool> {
        let bdf = self.vm.bdf(self.id);
        self.timed(what, write(self.file("unbind"), bdf.as_bytes()))
    }

    /// What makes the driver issue QUERY_ADAPTER.
    fn query_call(&self) -> Result<Call> {
        let bdf = self.vm.bdf(self.id);
        if self.driver == DRIVER {
            return Ok(Call::ReadFile {
                path: format!("/sys/kernel/debug/{DRIVER}/{bdf}/query_adapter"),
                offset: 0,
                max: 4096,
            });
        }
        // mlx5_core carries out what is written here: opcode and modifier, and
        // the length of the answer (query_adapter_in and _out of mlx5_ifc.h).
        let folder = format!("/sys/kernel/debug/mlx5/{bdf}/cmd");
        let mut request = [0; 16];
        request[..2].copy_from_slice(&0x0101_u16.to_be_bytes());
        let soon = self.vm.soon();
        let agent = self.vm.agent();
        agent.set_bytes(&format!("{folder}/in"), &request, soon)?;
        agent.set(&format!("{folder}/out_len"), "272", soon)?;
        Ok(write(format!("{folder}/run"), b"go"))
    }

    /// Waits for the answer to a query.
    fn answer(&mut self, what: &str, start: Instant, pending: &Pending) -> Result<bool> {
        let Some(reply) = self.wait(what, start, pending)? else {
            return Ok(false);
        };
        if let Reply::Data { data, .. } = reply {
            let text = String::from_utf8_lossy(&data).into_owned();
            if !text.starts_with("ieee_vendor_id ") {
                // The driver's own words, without the name of the command.
                let why = text.trim_end();
                let why = why.split_once(": ").map_or(why, |(_, why)| why).to_owned();
                self.outcome.words.pop();
                self.outcome.say(what, start.elapsed(), &End::Failed(why));
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn query(&mut self, what: &str) -> Result<bool> {
        let call = match self.query_call() {
            Ok(call) => call,
            Err(error) => {
                self.outcome.words.push(format!("no {what}: not there"));
                // Only what the guest itself says.
                return match error.downcast_ref::<GuestError>() {
                    Some(GuestError::Failed(_)) => Ok(false),
                    _ => Err(error),
                };
            }
        };
        let start = Instant::now();
        let pending = self.vm.agent().start(call)?;
        self.answer(what, start, &pending)
    }

    fn queries(&mut self, count: usize) -> Result<()> {
        let start = Instant::now();
        let call = self.query_call()?;
        let pending = (0..count)
            .map(|_| self.vm.agent().start(call.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let what = format!("{count} queries");
        let mut good = 0;
        let before = self.outcome.words.len();
        for pending in &pending {
            good += usize::from(self.answer(&what, start, pending)?);
        }
        // They are all alike: the last one speaks for them.
        let last = self.outcome.words.pop();
        self.outcome.words.truncate(before);
        self.outcome.words.extend(last);
        if good != 0 && good != count {
            self.outcome.words.push(format!("{good} answered"));
        }
        Ok(())
    }

    /// Waits until `look` says so; `what` says how it ended.
    fn until(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<bool> {
        let start = Instant::now();
        let limit = self.limit();
        loop {
            if look(self)? {
                self.outcome.say(what, start.elapsed(), &End::Done);
                return Ok(true);
            }
            if start.elapsed() > limit {
                self.outcome.say(what, start.elapsed(), &End::Hangs);
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn bus_error(&mut self) -> Result<()> {
        let bdf = self.vm.bdf(self.id);
        let mark = self.vm.mark()?;
        inject(self.vm, &bdf, 1 << 18, 0)?;
        let mut last = None;
        self.until("recovery", |trial| {
            let log = trial.vm.log_since(mark)?;
            last = log.iter().find_map(|line| {
                line.split_once("device recovery ")
                    .map(|(_, how)| how.to_owned())
            });
            Ok(last.is_some())
        })?;
        if last.is_some_and(|how| how.contains("failed")) {
            self.outcome.words.push("the kernel says it failed".into());
        }
        Ok(())
    }

    /// The driver's own warnings and errors after a mark.
    fn complaints(&mut self, mark: Mark) -> Result<usize> {
        let start = format!("{} {}", self.driver, self.vm.bdf(self.id));
        let records = self.vm.records_since(mark)?;
        let by_driver = |text: &str| text.starts_with(&start);
        Ok(records
            .iter()
            .filter(|record| record.level <= 4 && by_driver(&record.text))
            .count())
    }

    fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Tell(request) => self.vm.model(self.id)?.run(request)?,
            Bind => drop(self.bind("bind")?),
            Unbind => drop(self.unbind("unbind")?),
            Query => drop(self.query("query")?),
            Queries(count) => self.queries(count)?,
            Begin => {
                let call = self.query_call()?;
                self.begun.push(self.vm.agent().start(call)?);
                let (id, limit) = (self.id, self.limit());
                let model = self.vm.model(id)?;
                wait_until("a command in flight", limit, || {
                    Ok(!model.status()?.in_flight.is_empty())
                })?;
            }
            Reset => {
                let path = self.vm.sysfs(self.id, "reset");
                self.timed("reset", write(path, b"1"))?;
            }
            BusError => self.bus_error()?,
            Settle => {
                let before = self.outcome.words.len();
                let id = self.id;
                let all = self.until("its answer", |trial| {
                    Ok(trial.vm.model(id)?.status()?.in_flight.is_empty())
                })?;
                // Not the driver's doing.
                if all {
                    self.outcome.words.truncate(before);
                }
            }
            Extra(count) => {
                let (id, wanted) = (self.id, self.pages + count);
                let what = if count == 0 { "release" } else { "give" };
                self.until(what, |trial| {
                    Ok(trial.vm.model(id)?.status()?.pages.given == wanted)
                })?;
            }
            Notice => {
                let mark = self.vm.mark()?;
                self.until("notice", |trial| Ok(trial.complaints(mark)? > 0))?;
            }
        }
        Ok(())
    }

    /// The scenario, and whether the device can be used after it.
    fn run(&mut self) -> Result<()> {
        for request in TIMES {
            self.vm.model(self.id)?.run(request)?;
        }
        for step in self.scenario.steps {
            self.step(*step)?;
        }
        let tried_to_unbind = matches!(self.scenario.steps.last(), Some(Unbind));
        self.mend()?;
        if self.vm.driver_of(self.id)?.is_some() {
            if tried_to_unbind {
                self.outcome.faults.push("still bound".into());
            }
            let words = self.outcome.words.len();
            // Of no interest if it works and takes no time.
            let start = Instant::now();
            if self.unbind("unbind")? && start.elapsed() < Duration::from_secs(2) {
                self.outcome.words.truncate(words);
            }
        }
        for pending in std::mem::take(&mut self.begun) {
            // It may say whatever it likes, as long as it ends.
            if let Err(error @ GuestError::Timeout(_)) = pending.wait(self.limit()) {
                self.outcome.faults.push(format!("a reader hangs: {error}"));
                self.outcome.spent = true;
            }
        }
        self.silent("after it")?;
        if self.scenario.replaced {
            self.vm.renew(self.id)?;
        }
        let words = self.outcome.words.len();
        if self.bind("bind again")? && self.query("query")? && self.unbind("unbind")? {
            self.outcome.words.truncate(words);
            self.outcome.words.push("binds again".into());
        } else {
            self.outcome.faults.push("does not come up again".into());
        }
        self.silent("at the end")?;
        let status = self.vm.model(self.id)?.status()?;
        if status.state != State::Reset || status.pages.given != 0 {
            let pages = status.pages.given;
            let left = format!(
                "at the end the device is {:?} with {pages} pages",
                status.state
            );
            self.outcome.faults.push(left);
        }
        Ok(())
    }

    /// Unbound, the device must not be able to use memory.
    fn silent(&mut self, when: &str) -> Result<()> {
        if self.vm.model(self.id)?.status()?.bus_master {
            self.outcome.faults.push(format!("still bus master {when}"));
        }
        Ok(())
    }
}

/// Has the kernel believe that the device `bdf` (`dddd:bb:dd.f`) has reported
/// errors: bits of the uncorrectable and correctable status registers
/// (`PCI_ERR_UNC_*`, `PCI_ERR_COR_*` of pci_regs.h). Needs the module
/// aer_inject, whose `struct aer_error_inj` this is.
///
/// # Errors
///
/// If the kernel refuses.
pub fn inject(vm: &Vm, bdf: &str, uncorrectable: u32, correctable: u32) -> Result<()> {
    let part = |range| {
        let digits = bdf.get(range);
        let number = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        number.with_context(|| format!("{bdf:?} is no PCI address"))
    };
    let mut bytes = vec![part(5..7)?, part(8..10)?, part(11..12)?, 0];
    // Domain 0 is left out, as the kernel allows; the header log is zero.
    for word in [uncorrectable, correctable, 0, 0, 0, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    let path = format!("/dev/{INJECTOR}");
    vm.agent().set_bytes(&path, &bytes, vm.soon())?;
    Ok(())
}

/// A guest for scenarios; both drivers are in it.
pub fn guest(ports: u8) -> Boot {
    Boot {
        hardware: Hardware {
            ports,
            ..Hardware::default()
        },
        cmdline: vec!["kunit.enable=0".into()],
        modules: vec![PEER.into(), INJECTOR.into()],
        ..Boot::default()
    }
}

/// Loads both drivers, and keeps the kernel from binding them by itself.
///
/// # Errors
///
/// If that does not work.
pub fn load(vm: &Vm) -> Result<()> {
    let soon = vm.soon() * 2;
    vm.autoprobe(false)?;
    vm.modprobe(PEER, soon)?;
    vm.modprobe(INJECTOR, soon)?;
    vm.insmod("", soon)?;
    Ok(())
}

/// Runs `scenario` with `driver` on a device that is as after power on. Not
/// being able to find out is the only error: what the driver does is part of
/// the outcome.
///
/// # Errors
///
/// If the model or the guest does not do what it is told to do.
pub fn run(
    vm: &mut Vm,
    id: DeviceId,
    driver: &'static str,
    scenario: &'static Scenario,
) -> Result<Outcome> {
    ensure!(vm.driver_of(id)?.is_none(), "the device is bound already");
    vm.model(id)?.run("reset")?;
    vm.renew(id)?;
    let mark = vm.mark()?;
    let mut trial = Trial {
        vm,
        id,
        driver,
        scenario,
        mended: false,
        pages: 0,
        begun: Vec::new(),
        outcome: Outcome::default(),
    };
    let result = trial.run();
    let mut outcome = trial.outcome;
    match vm.log_since(mark) {
        Err(_) => {
            // The kernel panics at its first oops.
            let console = vm.console_tail(400);
            let why = console.lines().find(|line| klog::is_bad(line));
            let why = why.map_or("no reason is on the console", |line| {
                line.split_once("] ").map_or(line, |(_, text)| text)
            });
            outcome.faults.push(format!("the kernel is dead: {why}"));
            outcome.spent = true;
            return Ok(outcome);
        }
        Ok(log) => {
            let bad: Vec<&String> = log.iter().filter(|line| klog::is_bad(line)).collect();
            if let Some(first) = bad.first() {
                outcome.faults.push(place(first));
            }
        }
    }
    if let Err(error) = result {
        if !outcome.spent {
            return Err(error.context(format!("{driver}, {}", scenario.what)));
        }
    }
    if let Err(error) = vm.model(id)?.check() {
        let text = format!("{error:#}");
        let line = text.lines().nth(1).unwrap_or(&text).trim().to_owned();
        outcome.faults.push(format!("rule broken: {line}"));
    }
    Ok(outcome)
}

/// A kernel's complaint without paths and numbers that fill a line:
/// `WARNING: drivers/a/b.c:8 at f+0x1/0x2 [m], CPU#0: init/1`.
fn place(line: &str) -> String {
    let short = line.split_once(": ").and_then(|(kind, rest)| {
        let (file, rest) = rest.split_once(" at ")?;
        let (function, _) = rest.split_once('+')?;
        let file = file.rsplit('/').next()?;
        Some(format!("{kind} in {function}() ({file})"))
    });
    short.unwrap_or_else(|| line.to_owned())
}

/// Words of one cell.
fn cell(outcome: &Outcome) -> String {
    let faults = outcome.faults.iter().map(|fault| format!("! {fault}"));
    let all: Vec<String> = outcome.words.iter().cloned().chain(faults).collect();
    all.join("; ")
}

/// Breaks `text` into lines of at most `width` characters, at blanks.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is always one");
            let used = line.chars().count();
            let blank = usize::from(used > 0);
            if used + blank + rest.len() <= width {
                line.extend(std::iter::repeat_n(' ', blank));
                line.extend(rest);
                break;
            }
            if used == 0 {
                // Longer than a line.
                line.extend(rest.drain(..width));
            }
            lines.push(String::new());
        }
    }
    lines
}

/// Widths of case, trouble and the two drivers.
const WIDTHS: [usize; 4] = [4, 28, 44, 44];

fn print_row(cells: [&str; 4]) {
    let columns: Vec<Vec<String>> = cells
        .iter()
        .zip(WIDTHS)
        .map(|(text, width)| wrap(text, width))
        .collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let mut text = String::from("  ");
        for (column, width) in columns.iter().zip(WIDTHS) {
            let part = column.get(line).map_or("", String::as_str);
            text.push_str(&format!(" {part:<width$} "));
        }
        println!("{}", text.trim_end());
    }
}

/// A guest, and the device of the current scenario.
struct Stage<'a> {
    manifest: &'a Manifest,
    vm: Option<Vm>,
    left: u8,
    guests: usize,
}

impl Stage<'_> {
    /// Root ports of one guest: each scenario takes one, and each costs boot
    /// time.
    const PORTS: u8 = 12;

    /// A guest with a new device.
    fn device(&mut self) -> Result<(&mut Vm, DeviceId)> {
        if self.left == 0 {
            self.vm = None;
        }
        let vm = match &mut self.vm {
            Some(vm) => vm,
            none => {
                self.guests += 1;
                self.left = Self::PORTS;
                let name = format!("peer-{}", self.guests);
                let vm = Vm::boot(self.manifest, &name, &guest(Self::PORTS))?;
                load(&vm)?;
                none.insert(vm)
            }
        };
        self.left -= 1;
        let id = vm.add_device(&[])?;
        Ok((vm, id))
    }
}

/// Runs and prints all scenarios. Returns what `mlx5_rs` did that no driver
/// should do.
///
/// # Errors
///
/// See [`run`].
pub fn table(manifest: &Manifest) -> Result<Vec<String>> {
    let mut stage = Stage {
        manifest,
        vm: None,
        left: 0,
        guests: 0,
    };
    let mut bad = Vec::new();
    println!(
        "   Commands may take 1 s by what the device says, mlx5_core waits 5 s more. A step that is \
         not over after\n   {} s goes on with the trouble mended; \"!\" marks what no driver should do.\n",
        LIMIT.as_secs()
    );
    print_row(["", "", PEER, DRIVER]);
    for scenario in SCENARIOS {
        let mut cells = Vec::new();
        let mut device = None;
        for driver in [PEER, DRIVER] {
            let (vm, id) = match device.take() {
                Some(id) => (stage.vm.as_mut().context("the guest")?, id),
                None => stage.device()?,
            };
            let outcome = run(vm, id, driver, scenario)?;
            if outcome.spent {
                stage.vm = None;
            } else {
                device = Some(id);
            }
            if driver == DRIVER {
                let faults = outcome.faults.iter();
                bad.extend(faults.map(|fault| format!("{}: {fault}", scenario.what)));
            }
            cells.push(cell(&outcome));
        }
        print_row([scenario.case, scenario.what, &cells[0], &cells[1]]);
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn complaints_are_shortened() {
        let line = "WARNING: drivers/a/b.c:87 at f+0x1dc/0x260 [m], CPU#0: init/197";
        assert_eq!(place(line), "WARNING in f() (b.c:87)");
        let line = "BUG: KASAN: use-after-free in f+0x1/0x2";
        assert_eq!(place(line), line);
    }

    #[test]
    fn lines_are_filled() {
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("a 123456789 b", 4), ["a", "1234", "5678", "9 b"]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_long_and_nothing_is_lost(text in "[a-c ]{0,60}", width in 1usize..20) {
            let lines = wrap(&text, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width));
            let plain = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(plain(&lines.concat()), plain(&text));
        }
    }
}
