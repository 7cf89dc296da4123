// SPDX-License-Identifier: GPL-2.0

//! `mlx5-model`: serves one ConnectX function to QEMU. See docs/model-control.md.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use mlx5_model::device::Device;
use mlx5_model::identity::Identity;
use mlx5_model::identity::PortType;
use mlx5_model::stale;

/// A ConnectX device in user space, served to QEMU over vfio-user.
///
/// QEMU takes it as `-device '{"driver":"vfio-user-pci","bus":"rp0","socket":{"type":"unix",
/// "path":"SOCKET"}}'`; guest memory must be shared (memory-backend-memfd with share=on).
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Socket for QEMU.
    #[arg(long)]
    socket: PathBuf,

    /// Control socket (docs/model-control.md).
    #[arg(long)]
    control: PathBuf,

    /// Adapter by name or by PCI id of its PF, such as cx7 or 0x1021.
    #[arg(long, default_value = "cx7")]
    device: String,

    /// Link layer of the port.
    #[arg(long, value_enum, default_value_t)]
    port_type: PortType,

    /// Be a virtual function of the adapter.
    #[arg(long)]
    vf: bool,

    /// Be a virtual function whose PF is in the same guest: without ids in configuration space.
    #[arg(long)]
    behind_pf: bool,

    /// Have an SR-IOV capability for so many virtual functions.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with_all = ["vf", "behind_pf"])]
    vfs: u16,

    /// Start as if a driver that never said goodbye had given this many pages.
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(..=i64::from(stale::MAX_PAGES)))]
    stale: Option<u32>,

    /// Log to stderr: error, warn, info, debug or trace.
    #[arg(long, default_value = "info")]
    log: log::LevelFilter,
}

fn main() -> Result<()> {
    let args = Args::parse();
    env_logger::Builder::new().filter_level(args.log).init();
    let vf = args.vf || args.behind_pf;
    let identity = Identity {
        behind_pf: args.behind_pf,
        total_vfs: args.vfs,
        ..Identity::new(&args.device, args.port_type, vf)?
    };
    log::info!("{} [15b3:{:04x}]", identity.name, identity.device_id);
    let mut device = Device::new(identity);
    if let Some(pages) = args.stale {
        device.leave_stale(pages, stale::EQS);
    }
    mlx5_model::run::run(&mut device, &args.socket, &args.control)
}
