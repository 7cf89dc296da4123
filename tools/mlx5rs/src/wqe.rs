// SPDX-License-Identifier: GPL-2.0

//! `mlx5rs wqe`: explains WQEs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use mlx5_pure::wqe::{
    validate,
    Caps,
    Context,
    Json,
    Number,
    Psv,
    Text,
    TransportKind,
    Units, //
};

use crate::dump::{self, Run};
use crate::{caps, Error, Outcome};

/// The most bytes that are read: many dumps, and no mistake such as a disk.
const MAX_INPUT: u64 = 16 << 20;

/// Explain work queue elements of send queues.
///
/// Reads WQEs from a file or from standard input, writes every field with its value and meaning, and
/// marks what is invalid with the reason.
///
/// The input is what there is: the bytes of a WQE or of a ring of them, hex digits, rows of xxd and
/// hexdump -C, or a log with the dumps of mlx5_core ("WQE DUMP"), mlx5_ib and rdma-core (dump_wqe).
/// Other lines of a log are skipped. WQEs begin at multiples of 64 bytes, and an empty line ends one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{}\n\n{}", caps::HELP, EXIT_CODES))]
pub struct Args {
    /// The file; `-` is standard input.
    #[arg(default_value = "-")]
    file: PathBuf,

    /// What the input is.
    #[arg(long, value_enum, default_value_t)]
    input: Input,

    /// Write one JSON object for each WQE, one a line.
    #[arg(long)]
    json: bool,

    /// Only say what is invalid.
    #[arg(long, conflicts_with = "json")]
    check: bool,

    /// Transport of the queue: rc, uc, ud, ud-offload, xrc, dci, raw or reg-umr; without it, the bytes
    /// tell as well as they can.
    #[arg(long, value_parser = transport, value_name = "TRANSPORT")]
    transport: Option<TransportKind>,

    /// Capabilities of the device: `all` (default) or `none`, then names or NAME=VALUE.
    #[arg(long, value_parser = caps::parse, value_name = "LIST", default_value = "all")]
    caps: Caps,

    /// Number of the queue pair or send queue.
    #[arg(long, value_parser = number24, value_name = "NUMBER")]
    qpn: Option<Number>,

    /// Producer counter at the first WQE.
    #[arg(long, value_parser = number16, value_name = "NUMBER")]
    index: Option<u16>,

    /// Whether WQEs of the queue are signed.
    #[arg(long, value_name = "BOOL")]
    signed: Option<bool>,

    /// Protection domain of the queue.
    #[arg(long, value_parser = number24, value_name = "NUMBER")]
    pd: Option<Number>,

    /// A PSV and the protection domain that it belongs to; may be given several times.
    #[arg(long, value_parser = psv, value_name = "INDEX=PD", requires = "pd")]
    psv: Vec<Psv>,
}

const EXIT_CODES: &str = "\
Exit code: 0 all WQEs are valid, 1 one is not, 2 the input or an option is bad.";

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Input {
    /// Text if all of it is printable, else binary.
    #[default]
    Auto,
    /// The bytes themselves.
    Binary,
    /// Hex digits, or lines of a dump.
    Text,
}

fn transport(text: &str) -> Result<TransportKind, String> {
    TransportKind::from_name(text).ok_or_else(|| {
        let names: Vec<_> = TransportKind::ALL.iter().map(|(_, name)| *name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn number24(text: &str) -> Result<Number, String> {
    let number = caps::number(text, Number::MAX.into())?;
    // At most 24 bits.
    Ok(Number::low(number as u32))
}

fn number16(text: &str) -> Result<u16, String> {
    // At most 16 bits.
    caps::number(text, u16::MAX.into()).map(|number| number as u16)
}

fn psv(text: &str) -> Result<Psv, String> {
    let (index, pd) = text
        .split_once('=')
        .ok_or("expected <number of the PSV>=<its protection domain>")?;
    Ok(Psv {
        index: number24(index)?,
        pd: number24(pd)?,
    })
}

/// Reads, explains and checks.
pub fn run(args: &Args) -> Result<Outcome, Error> {
    let name = if args.file == Path::new("-") {
        "standard input".to_owned()
    } else {
        args.file.display().to_string()
    };
    let bytes = match read(&args.file) {
        Ok(bytes) => bytes,
        Err(error) => return Err(Error::Read { name, error }),
    };
    let runs = match runs(args.input, bytes, &name) {
        Ok(runs) => runs,
        Err(error) => return Err(Error::Input { name, error }),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let outcome = explain(args, &runs, &mut out)?;
    out.flush()?;
    Ok(outcome)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let source: &mut dyn Read = if file == Path::new("-") {
        &mut io::stdin()
    } else {
        &mut File::open(file)?
    };
    source.take(MAX_INPUT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(io::Error::other(format!(
            "expected at most {MAX_INPUT} bytes"
        )));
    }
    Ok(bytes)
}

fn runs(input: Input, bytes: Vec<u8>, name: &str) -> Result<Vec<Run>, dump::Error> {
    let text = match input {
        Input::Auto => dump::is_text(&bytes),
        Input::Binary => false,
        Input::Text => true,
    };
    if bytes.is_empty() {
        return Err(dump::nothing("no bytes"));
    }
    if !text {
        return Ok(vec![Run::binary(bytes)]);
    }
    let text = dump::parse(&String::from_utf8_lossy(&bytes))?;
    if text.runs.is_empty() {
        return Err(dump::nothing(format!(
            "{} of text without a dump",
            lines(text.skipped)
        )));
    }
    if text.skipped != 0 {
        // Nobody is left to tell if this fails.
        let _ = writeln!(
            io::stderr(),
            "mlx5rs: note: {name}: skipped {} that are no part of a dump",
            lines(text.skipped)
        );
    }
    Ok(text.runs)
}

fn lines(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} line{plural}")
}

fn explain(args: &Args, runs: &[Run], out: &mut impl Write) -> Result<Outcome, Error> {
    let mut context = Context {
        transport: args.transport,
        caps: args.caps,
        qpn: args.qpn,
        index: args.index,
        signed: args.signed,
        pd: args.pd,
        psvs: &args.psv,
    };
    let (mut wqes, mut invalid) = (0_usize, 0_usize);
    for run in runs {
        for range in run.wqes() {
            let line = run.line(range.start);
            let place = match line {
                Some(line) => format!("line {line}"),
                None => format!("byte {:#x}", range.start),
            };
            let blocks = range.len().div_ceil(mlx5_pure::wqe::BLOCK);
            let units = Units::of(&run.bytes[range.clone()]);
            let mut violations = 0_usize;
            validate(units, &context, &mut |_| violations += 1);
            if args.json {
                let line = line.map_or("null".to_owned(), |line| line.to_string());
                let json = Json {
                    units,
                    context: &context,
                };
                writeln!(
                    out,
                    "{{\"line\":{line},\"byte\":{},\"valid\":{},\"wqe\":{json}}}",
                    range.start,
                    violations == 0
                )?;
            } else if args.check {
                let mut result = Ok(());
                validate(units, &context, &mut |violation| {
                    if result.is_ok() {
                        result = writeln!(out, "{place}: {violation}");
                    }
                });
                result?;
            } else {
                if wqes != 0 {
                    writeln!(out)?;
                }
                let text = Text {
                    units,
                    context: &context,
                };
                write!(out, "{place}: {text}")?;
            }
            wqes += 1;
            invalid += usize::from(violations != 0);
            // At most 16 blocks.
            context.index = context.index.map(|index| index.wrapping_add(blocks as u16));
        }
    }
    if !args.json {
        let plural = if wqes == 1 { "" } else { "s" };
        writeln!(out, "{wqes} WQE{plural}, {invalid} invalid")?;
    }
    Ok(if invalid == 0 {
        Outcome::Valid
    } else {
        Outcome::Invalid
    })
}
