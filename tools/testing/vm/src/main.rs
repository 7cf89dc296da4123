// SPDX-License-Identifier: GPL-2.0
//! Runs the driver in a virtual machine, on the device model or a real card.
//! What to run is in the manifest that `MLX5RS_MANIFEST` names.

use anyhow::Result;
use clap::{Parser, Subcommand};
use mlx5_vm::keeper;
use mlx5_vm::manifest::Manifest;
use std::path::PathBuf;
use std::process::ExitCode;

mod command;

#[derive(Debug, Parser)]
#[command(name = "mlx5-vm", about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Boot, bring a device up with mlx5_rs, show it, take it down again
    Run {
        /// Options of the device model, for example `--device bf3`
        #[arg(last = true)]
        model: Vec<String>,
    },
    /// The same, with a shell on the console in the middle
    Shell {
        /// Options of the device model
        #[arg(last = true)]
        model: Vec<String>,
    },
    /// Run the KUnit suites of mlx5_rs.ko
    Kunit,
    /// Bring the device up with the kernel's own mlx5_core, and compare
    Peer,
    /// Own a guest that tests share (they start this themselves)
    #[command(hide = true)]
    Keeper {
        #[arg(long)]
        socket: PathBuf,
        #[arg(long)]
        boot: String,
        #[arg(long)]
        runner: Option<i32>,
    },
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let manifest = Manifest::from_env()?;
    match arguments.command {
        Command::Run { model } => command::run(&manifest, &model),
        Command::Shell { model } => command::shell(&manifest, &model),
        Command::Kunit => command::kunit(&manifest),
        Command::Peer => command::peer(&manifest),
        Command::Keeper {
            socket,
            boot,
            runner,
        } => {
            let boot = serde_json::from_str(&boot)?;
            keeper::keep(&manifest, &boot, &socket, runner)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mlx5-vm: {error:#}");
            ExitCode::FAILURE
        }
    }
}
