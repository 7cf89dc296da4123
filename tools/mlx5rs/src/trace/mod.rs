// SPDX-License-Identifier: GPL-2.0

//! `mlx5rs trace`: reads, follows and shows firmware traces. See docs/trace-tool.md.

mod chrome;
mod clock;
mod filter;
mod line;
mod output;
mod source;
mod summary;
mod svg;
mod timeline;
mod tracefs;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use chrome::Chrome;
use clock::Clock;
use filter::{Filter, Strings};
use line::{Line, Record, Wrong};
use output::{printable, Text};
use source::{End, Raw, ReadError, Signals, Source};
use summary::Summary;
use svg::Svg;
use timeline::Entry;
use tracefs::Instance;

pub use tracefs::Error as TracefsError;

use crate::{caps, Error, Outcome};

/// The most devices: names come from the lines.
const MAX_DEVICES: usize = 4096;

/// Unreadable lines that are shown; all are counted.
const SHOWN: u64 = 10;

/// Show, follow and export traces of ConnectX firmware.
///
/// Reads the lines that the trace event mlx5:mlx5_fw has in tracefs (of mlx5_rs and of mlx5_core), or
/// that mlx5_rs has in debugfs, from a file, a pipe or standard input; or follows them live, with an
/// instance of tracefs of its own. Other events are skipped; lines that should be traces and are not
/// readable are counted and shown on standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLES}\n\n{TIMES}\n\n{EXIT_CODES}"))]
pub struct Args {
    /// The file or pipe; `-` is standard input.
    #[arg(default_value = "-", conflicts_with = "follow")]
    file: PathBuf,

    /// Follow the live trace of this machine, until SIGINT, SIGTERM or SIGHUP.
    #[arg(long)]
    follow: bool,

    /// With --follow: wait for a driver that is not loaded yet.
    #[arg(long, requires = "follow")]
    wait: bool,

    /// With --follow: where tracefs is.
    #[arg(
        long,
        requires = "follow",
        value_name = "DIR",
        default_value = "/sys/kernel/tracing"
    )]
    tracefs: PathBuf,

    /// With --follow: size of each CPU's buffer in the kernel, in KiB.
    #[arg(long, requires = "follow", value_name = "KIB", value_parser = positive)]
    buffer: Option<u32>,

    /// Write one JSON object for each trace, one a line.
    #[arg(long)]
    json: bool,

    /// Only write the counts, at the end.
    #[arg(long)]
    summary: bool,

    /// Write nothing but what the options below write, and errors.
    #[arg(long, conflicts_with_all = ["json", "summary"])]
    quiet: bool,

    /// Also write the lines as they came to a file, which this tool reads again.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Also write a timeline for Perfetto (ui.perfetto.dev) and chrome://tracing.
    #[arg(long, value_name = "FILE")]
    chrome: Option<PathBuf>,

    /// Also draw a picture.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Ticks of the device's clock per millisecond; without it, times are in ticks.
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    khz: Option<u32>,

    /// Event ids of string traces: first_string_trace and num_string_trace of MTRC_CAP, such as 2+14.
    #[arg(long, value_name = "FIRST+COUNT", value_parser = Strings::parse)]
    strings: Option<Strings>,

    #[command(flatten)]
    filter: Filter,
}

const EXAMPLES: &str = "\
Examples:
  mlx5rs trace /sys/kernel/tracing/trace             what is there now
  mlx5rs trace --follow --save traces.txt            live, and kept
  mlx5rs trace --summary traces.txt                  counts
  mlx5rs trace --khz 1000000 --chrome t.json traces.txt   for Perfetto";

const TIMES: &str = "\
Times are those of the device: 53 bits that run in a circle. What a tick is no public source says; --khz
tells the tool (the device model has 1000000), which then shows seconds. Pictures and --chrome take a
tick for a nanosecond where they are not told, and say so.";

const EXIT_CODES: &str = "\
Exit code: 0 all lines were readable, 1 some were not, 2 the input or an option is bad.";

fn positive(text: &str) -> Result<u32, String> {
    match caps::number(text, u32::MAX.into()) {
        Ok(0) => Err(format!(
            "`{text}`: expected a number from 1 to {:#x}",
            u32::MAX
        )),
        // At most 32 bits.
        result => result.map(|number| number as u32),
    }
}

impl From<ReadError> for Error {
    fn from(ReadError(error): ReadError) -> Self {
        Self::Read {
            name: String::new(),
            error,
        }
    }
}

/// A file that is written to.
#[derive(Debug)]
struct Output {
    name: String,
    file: BufWriter<File>,
}

impl Output {
    /// Makes a file; not in place of the input.
    fn create(path: &Path, input: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let error = |error| Error::Write {
            name: name.clone(),
            error,
        };
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        if let (Ok(a), Ok(b)) = (fs::metadata(path), fs::metadata(input)) {
            if same(a, b) {
                let text = "it is the input: expected another file";
                return Err(error(io::Error::other(text)));
            }
        }
        let file = BufWriter::new(File::create(path).map_err(error)?);
        Ok(Self { name, file })
    }

    fn run(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), Error> {
        write(&mut self.file).map_err(|error| Error::Write {
            name: self.name.clone(),
            error,
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Says something on standard error.
fn note(text: std::fmt::Arguments<'_>) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr(), "mlx5rs: {text}");
}

/// A device that has been seen.
#[derive(Debug, Default)]
struct Device {
    clock: Clock,
    before: Option<i128>,
}

/// From lines to all that is written.
struct Run<'a, W> {
    args: &'a Args,
    name: &'a str,
    out: W,
    text: Text,
    save: Option<Output>,
    chrome: Option<(String, Chrome<Output>)>,
    svg: Option<(Output, Svg)>,
    summary: Summary,
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    devices: Vec<Device>,
    /// Number of the line.
    line: u64,
}

impl<'a, W: Write> Run<'a, W> {
    fn new(args: &'a Args, name: &'a str, input: &Path, out: W) -> Result<Self, Error> {
        let open = |path: &Option<PathBuf>| {
            path.as_ref()
                .map(|path| Output::create(path, input))
                .transpose()
        };
        let chrome = match open(&args.chrome)? {
            Some(output) => {
                let name = output.name.clone();
                let chrome = Chrome::new(output, args.khz, args.strings);
                let error = |error| Error::Write {
                    name: name.clone(),
                    error,
                };
                Some((name.clone(), chrome.map_err(error)?))
            }
            None => None,
        };
        Ok(Self {
            args,
            name,
            out,
            text: Text::new(output::Clock { khz: args.khz }),
            save: open(&args.save)?,
            chrome,
            svg: open(&args.svg)?.map(|output| (output, Svg::new(args.khz, args.strings))),
            summary: Summary::default(),
            numbers: HashMap::new(),
            names: Vec::new(),
            devices: Vec::new(),
            line: 0,
        })
    }

    /// Whether records are written one by one.
    fn is_listing(&self) -> bool {
        !self.args.summary && !self.args.quiet
    }

    fn line(&mut self, raw: Raw<'_>) -> Result<(), Error> {
        self.line += 1;
        let text = String::from_utf8_lossy(raw.bytes);
        let parsed = match raw.cut {
            true => Err(Wrong::new("line", &text, "at most 65536 bytes")),
            false => line::parse(&text),
        };
        let wanted = match parsed {
            Ok(Line::Record(record)) => self.record(&record)?,
            Ok(Line::Overrun { cpu, events }) => {
                self.overrun(cpu, events)?;
                true
            }
            Ok(Line::Empty) => false,
            Ok(Line::Foreign) => {
                self.summary.foreign += 1;
                false
            }
            Err(wrong) => {
                self.unreadable(&wrong);
                true
            }
        };
        match &mut self.save {
            Some(save) if wanted => save.run(|out| {
                out.write_all(raw.bytes)?;
                out.write_all(b"\n")
            }),
            _ => Ok(()),
        }
    }

    fn unreadable(&mut self, wrong: &Wrong) {
        self.summary.unreadable += 1;
        match self.summary.unreadable {
            1..=SHOWN => note(format_args!("{}: line {}: {wrong}", self.name, self.line)),
            n if n == SHOWN + 1 => note(format_args!("{}: more such lines are counted", self.name)),
            _ => {}
        }
    }

    /// Number of a device, if there is room for it.
    fn device(&mut self, name: &str) -> Option<usize> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = self.names.len();
        if number == MAX_DEVICES {
            return None;
        }
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        self.devices.push(Device::default());
        Some(number)
    }

    /// Handles a record; whether it is wanted.
    fn record(&mut self, record: &Record<'_>) -> Result<bool, Error> {
        let number = self.device(record.device);
        let Some((number, device)) = number.and_then(|n| Some((n, self.devices.get_mut(n)?)))
        else {
            self.unreadable(&Wrong::new("device", record.device, "at most 4096 devices"));
            return Ok(true);
        };
        let place = device.clock.place(record.time);
        let entry = Entry {
            device: number,
            record,
            place,
            before: device.before.replace(place.ticks),
            shown: self.args.filter.wants(record, self.args.strings),
        };
        if let Some((name, chrome)) = &mut self.chrome {
            chrome.record(&entry).map_err(|error| Error::Write {
                name: name.clone(),
                error,
            })?;
        }
        if let Some((_, svg)) = &mut self.svg {
            svg.record(&entry);
        }
        if !entry.shown {
            self.summary.filtered += 1;
            return Ok(false);
        }
        self.summary.record(&entry);
        if self.is_listing() {
            if self.args.json {
                let clock = output::Clock { khz: self.args.khz };
                output::json(&entry, clock, &mut self.out)?;
            } else {
                self.text.record(&entry, &mut self.out)?;
            }
        }
        Ok(true)
    }

    fn overrun(&mut self, cpu: Option<u32>, events: Option<u64>) -> Result<(), Error> {
        self.summary.overrun(events);
        if let Some((name, chrome)) = &mut self.chrome {
            chrome.overrun(cpu, events).map_err(|error| Error::Write {
                name: name.clone(),
                error,
            })?;
        }
        if let Some((_, svg)) = &mut self.svg {
            svg.overrun();
        }
        if self.is_listing() {
            if self.args.json {
                output::json_overrun(cpu, events, &mut self.out)?;
            } else {
                self.text.overrun(cpu, events, &mut self.out)?;
            }
        }
        Ok(())
    }

    /// Before it waits for more: who looks on sees all there is.
    fn flush(&mut self) -> Result<(), Error> {
        // First what is kept, then what is said.
        if let Some(save) = &mut self.save {
            save.run(Write::flush)?;
        }
        if let Some((name, chrome)) = &mut self.chrome {
            chrome.flush().map_err(|error| Error::Write {
                name: name.clone(),
                error,
            })?;
        }
        self.out.flush()?;
        Ok(())
    }

    fn end(&mut self) -> Result<Outcome, Error> {
        if let Some((name, chrome)) = &mut self.chrome {
            let early = chrome.end(&self.names).map_err(|error| Error::Write {
                name: name.clone(),
                error,
            })?;
            if early != 0 {
                note(format_args!(
                    "note: {name}: {early} traces are older than its first time, and stand there"
                ));
            }
        }
        if let Some((output, svg)) = &mut self.svg {
            let names = &self.names;
            output.run(|out| {
                svg.end(names, out)?;
                out.flush()
            })?;
        }
        if self.args.khz.is_none() && (self.chrome.is_some() || self.svg.is_some()) {
            note(format_args!(
                "note: the device's clock is not known (--khz): a tick is drawn as a nanosecond"
            ));
        }
        let out = &mut self.out;
        if self.args.summary && self.args.json {
            self.summary.json(&self.names, out)?;
        } else if self.args.summary {
            let clock = output::Clock { khz: self.args.khz };
            self.summary
                .text(&self.names, clock, self.args.strings, out)?;
        } else if !self.args.json && !self.args.quiet {
            self.summary.line(out)?;
        }
        self.flush()?;
        let unreadable = self.summary.unreadable;
        if unreadable == 0 {
            return Ok(Outcome::Valid);
        }
        let plural = if unreadable == 1 { " is" } else { "s are" };
        note(format_args!(
            "{}: {unreadable} line{plural} not readable",
            self.name
        ));
        Ok(Outcome::Invalid)
    }

    /// Reads lines until there are no more, or a signal comes.
    fn read(&mut self, source: &mut Source<'_>) -> Result<End, Error> {
        let name = self.name;
        // Both closures need it, never at once.
        let run = RefCell::new(self);
        let line = |raw: Raw<'_>| run.borrow_mut().line(raw);
        let result = source.lines(line, || run.borrow_mut().flush());
        result.map_err(|error| error.named(name))
    }

    /// Reads the lines that are left after a signal; whether these were all.
    fn drain(&mut self, source: &mut Source<'_>) -> Result<bool, Error> {
        let name = self.name;
        let result = source.drain(|raw| self.line(raw));
        result.map_err(|error| error.named(name))
    }
}

impl Error {
    /// Says what could not be read.
    fn named(self, name: &str) -> Self {
        match self {
            Self::Read { error, .. } => Self::Read {
                name: name.to_owned(),
                error,
            },
            error => error,
        }
    }
}

/// Reads or follows, and shows.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    // Before there is an instance.
    let signals = Signals::catch().map_err(|error| Error::Read {
        name: "signals".to_owned(),
        error,
    })?;
    let out = BufWriter::new(io::stdout().lock());
    if args.follow {
        return follow(args, &signals, out);
    }
    let name = if args.file == Path::new("-") {
        "standard input".to_owned()
    } else {
        args.file.display().to_string()
    };
    let mut source = match Source::open(&args.file, &signals) {
        Ok(source) => source,
        Err(error) => return Err(Error::Read { name, error }),
    };
    let mut run = Run::new(args, &name, &args.file, out)?;
    // A signal ends it in order.
    run.read(&mut source)?;
    run.end()
}

fn follow(args: &Args, signals: &Signals, out: impl Write) -> Result<Outcome, Error> {
    // Files first: nothing is lost if one cannot be made.
    let name = "trace_pipe";
    let mut run = Run::new(args, name, Path::new(""), out)?;
    let instance = Instance::create(&args.tracefs, signals)?;
    if instance.enable(args.wait, args.buffer)? {
        let pipe = instance.pipe();
        let mut source = Source::open(&pipe, signals).map_err(|error| Error::Read {
            name: pipe.display().to_string(),
            error,
        })?;
        note(format_args!("note: following {}", pipe.display()));
        if run.read(&mut source)? == End::Input {
            note(format_args!("note: {} has ended", pipe.display()));
        } else {
            instance.disable()?;
            if !run.drain(&mut source)? {
                note(format_args!(
                    "note: {} goes on, and is not read to its end",
                    pipe.display()
                ));
            }
        }
    }
    let removed = instance.remove();
    let outcome = run.end()?;
    removed?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    #[test]
    fn limits_are_what_errors_say() {
        assert_eq!(super::source::MAX_LINE, 65536);
        assert_eq!(super::MAX_DEVICES, 4096);
    }
}
