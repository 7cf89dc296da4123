// SPDX-License-Identifier: GPL-2.0
//! QEMU's command line.

use crate::manifest::Manifest;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Where root ports sit on the root bus; eight to a slot.
const FIRST_SLOT: u8 = 0x10;

/// Most root ports: their windows have to fit below 4 GiB, since of the space
/// above that 1 TiB has ended in what QEMU reserves for AMD's bus.
pub const MAX_PORTS: u8 = 14;

/// The hardware of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hardware {
    /// RAM in MiB.
    pub memory: u32,
    /// Virtual CPUs.
    pub cpus: u8,
    /// Root ports for devices that are added while it runs.
    pub ports: u8,
    /// With an IOMMU (intel-iommu, interrupt remapping, caching mode).
    pub iommu: bool,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            memory: 1024,
            cpus: 2,
            ports: 12,
            iommu: false,
        }
    }
}

/// Slot and function of a root port on bus 0.
pub fn port_address(port: u8) -> (u8, u8) {
    (FIRST_SLOT + port / 8, port % 8)
}

/// Files and sockets of one QEMU.
#[derive(Debug, Clone, Copy)]
pub struct Paths<'a> {
    /// The initramfs.
    pub initrd: &'a Path,
    /// Socket of the agent's port.
    pub agent: &'a Path,
    /// Socket of the monitor.
    pub qmp: &'a Path,
    /// What the serial console prints.
    pub console: &'a Path,
}

/// The command line that runs `hardware`. With `terminal`, the serial console
/// is also on standard input and output.
pub fn arguments(
    manifest: &Manifest,
    hardware: &Hardware,
    paths: Paths<'_>,
    cmdline: &str,
    root: Option<&Path>,
    terminal: bool,
) -> Vec<String> {
    let mut args = manifest.qemu.clone();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
    add(&["-name", "mlx5-vm", "-nodefaults", "-no-user-config"]);
    add(&[
        "-display",
        "none",
        "-no-reboot",
        "-accel",
        "tcg,thread=multi",
    ]);
    // Without 5-level paging: while the kernel reads the CPU's features it
    // believes for a moment that it has 4 levels, and an interrupt just then
    // is a wild access to KASAN.
    let cpus = hardware.cpus.to_string();
    add(&["-cpu", "max,la57=off", "-smp", &cpus]);
    let irqchip = if hardware.iommu {
        ",kernel-irqchip=split"
    } else {
        ""
    };
    add(&[
        "-machine",
        &format!("q35,memory-backend=mem,smm=off,vmport=off{irqchip}"),
    ]);
    let memory = hardware.memory;
    add(&["-m", &format!("{memory}M")]);
    // The model maps guest memory: without share=on it reads zeros.
    add(&[
        "-object",
        &format!("memory-backend-memfd,id=mem,size={memory}M,share=on"),
    ]);
    add(&["-kernel", &manifest.image.display().to_string()]);
    add(&[
        "-initrd",
        &paths.initrd.display().to_string(),
        "-append",
        cmdline,
    ]);
    // Before all devices that it shall translate for.
    if hardware.iommu {
        add(&["-device", "intel-iommu,caching-mode=on,intremap=on"]);
    }
    // Without native hotplug (pciehp): its locking makes lockdep complain once
    // and then fall silent for the rest of the boot. At 5 GT/s: above it the
    // kernel waits after a reset for a bit (data link layer active) that QEMU
    // sets with native hotplug only.
    for port in 0..hardware.ports.min(MAX_PORTS) {
        let (slot, function) = port_address(port);
        add(&[
            "-device",
            &format!(
                "pcie-root-port,id=rp{port},bus=pcie.0,addr={slot:x}.{function},multifunction=on,\
                 chassis={},mem-reserve=2M,pref64-reserve=64M,\
                 x-do-not-expose-native-hotplug-cap=on,x-speed=5",
                u16::from(port) + 1
            ),
        ]);
    }
    let socket = |id: &str, path: &Path| {
        format!("socket,id={id},path={},server=on,wait=off", path.display())
    };
    add(&["-chardev", &socket("agent", paths.agent)]);
    add(&["-device", "virtio-serial-pci"]);
    let name = mlx5_agent::proto::PORT_NAME;
    add(&[
        "-device",
        &format!("virtserialport,chardev=agent,name={name}"),
    ]);
    add(&[
        "-chardev",
        &socket("qmp", paths.qmp),
        "-mon",
        "chardev=qmp,mode=control",
    ]);
    let console = paths.console.display();
    let chardev = if terminal {
        format!("stdio,id=console,signal=off,logfile={console}")
    } else {
        format!("file,id=console,path={console}")
    };
    add(&["-chardev", &chardev, "-serial", "chardev:console"]);
    if let Some(root) = root {
        let root = root.display();
        add(&[
            "-drive",
            &format!("file={root},if=none,id=root,format=raw,snapshot=on"),
        ]);
        add(&["-device", "virtio-blk-pci,drive=root"]);
    }
    args
}
