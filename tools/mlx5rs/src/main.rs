// SPDX-License-Identifier: GPL-2.0

//! `mlx5rs`: reads what ConnectX devices and their drivers leave behind. See docs/wqe.md and
//! docs/trace-tool.md.

mod caps;
mod dump;
mod trace;
mod wqe;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Reads what ConnectX devices and their drivers leave behind.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Trace(Box<trace::Args>),
    Wqe(wqe::Args),
}

/// How a run ended, if nothing hindered it.
enum Outcome {
    /// Nothing is wrong with what was read.
    Valid,
    /// Something is.
    Invalid,
}

/// Exit code if something is wrong with what was read.
const INVALID: u8 = 1;
/// Exit code if it could not be read; clap has the same for wrong options.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Trace(args) => trace::run(&args),
        Command::Wqe(args) => wqe::run(&args),
    };
    match result {
        Ok(Outcome::Valid) => ExitCode::SUCCESS,
        Ok(Outcome::Invalid) => ExitCode::from(INVALID),
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            // Whoever reads has read enough.
            ExitCode::from(BAD_INPUT)
        }
        Err(error) => {
            // Nobody is left to tell if this fails.
            let _ = writeln!(io::stderr(), "mlx5rs: error: {error}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Error {
    /// A file cannot be read.
    Read { name: String, error: io::Error },
    /// A file holds something else.
    Input { name: String, error: dump::Error },
    /// A file cannot be written.
    Write { name: String, error: io::Error },
    /// Something with tracefs does not work.
    Tracefs(trace::TracefsError),
    /// The answer cannot be written.
    Output(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<trace::TracefsError> for Error {
    fn from(error: trace::TracefsError) -> Self {
        Self::Tracefs(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read { name, error } => write!(f, "{name}: cannot be read: {error}"),
            Self::Input { name, error } => write!(f, "{name}: {error}"),
            Self::Write { name, error } => write!(f, "{name}: cannot be written: {error}"),
            Self::Tracefs(error) => error.fmt(f),
            Self::Output(error) => write!(f, "the answer cannot be written: {error}"),
        }
    }
}

impl std::error::Error for Error {}
