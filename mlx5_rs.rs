// SPDX-License-Identifier: GPL-2.0

//! Driver for NVIDIA/Mellanox ConnectX adapters.
//!
//! This file holds the module and the table of PCI ids. Data flows one way through the rooms:
//! PCI -> [`segment`] -> [`cmdif`] -> [`pages`] and [`caps`] -> [`eq`] and [`health`] -> [`sriov`] ->
//! [`mr`] -> [`tracer`], which reads firmware's traces -> [`device`], which brings them up in this order
//! and takes them down in the reverse one. `wqe` builds and reads work queue elements. [`kapi`] wraps the
//! kernel, [`layouts`] holds the device's structures.

// The pure files are also part of a host crate, where their items are public.
#![allow(unreachable_pub)]

use kernel::{
    device::Core,
    driver,
    pci,
    prelude::*,
    str::CStr,
    InPlaceModule, //
};

mod caps;
mod cmdif;
mod device;
mod eq;
mod health;
mod kapi;
// Declares more of each structure than is used so far.
#[allow(dead_code, unused_imports)]
mod layouts;
mod mr;
mod pages;
mod segment;
mod sriov;
mod tracer;
// Nothing posts WQEs yet: only the kernels with KUnit have them, for the tests.
#[cfg(CONFIG_KUNIT = "y")]
#[allow(dead_code, unused_imports)]
mod wqe;

use device::{
    hca::Params,
    Device, //
};
use kapi::pci_driver::{
    self,
    Channel,
    Verdict, //
};

/// What BARs, interrupts and debugfs entries are named after.
const NAME: &CStr = c"mlx5_rs";

module! {
    type: Mlx5Module,
    name: "mlx5_rs",
    authors: ["mlx5_rs developers"],
    description: "Driver for NVIDIA/Mellanox ConnectX adapters",
    license: "GPL v2",
    params: {
        cmd_timeout_ms: u32 {
            default: 0,
            description: "Command timeout in ms; 0: what the device asks for, else 60000",
        },
        init_timeout_ms: u32 {
            default: 120_000,
            description: "How long to wait for firmware to become ready, in ms",
        },
        comp_eqs: u32 {
            default: 0,
            description: "Completion event queues; 0: one for each CPU, as far as vectors go",
        },
    },
}

/// Names of the adapters, by PCI device id.
#[derive(Clone, Copy)]
struct Adapter(&'static str);

macro_rules! pci_ids {
    ($($id:literal => $name:literal,)*) => {
        // Every function that upstream's table holds (hardware.md, end of section 11).
        kernel::pci_device_table!(
            PCI_TABLE,
            <Mlx5Driver as pci_driver::Driver>::IdInfo,
            [$((pci::DeviceId::from_id(pci::Vendor::MELLANOX, $id), Adapter($name)),)*]
        );
    };
}

pci_ids! {
    0x1011 => "Connect-IB",
    0x1012 => "Connect-IB VF",
    0x1013 => "ConnectX-4",
    0x1014 => "ConnectX-4 VF",
    0x1015 => "ConnectX-4 Lx",
    0x1016 => "ConnectX-4 Lx VF",
    0x1017 => "ConnectX-5",
    0x1018 => "ConnectX-5 VF",
    0x1019 => "ConnectX-5 Ex",
    0x101a => "ConnectX-5 Ex VF",
    0x101b => "ConnectX-6",
    0x101c => "ConnectX-6 VF",
    0x101d => "ConnectX-6 Dx",
    0x101e => "ConnectX family VF",
    0x101f => "ConnectX-6 Lx",
    0x1021 => "ConnectX-7",
    0x1023 => "ConnectX-8",
    0x1025 => "ConnectX-9",
    0x1027 => "ConnectX-10",
    0x2101 => "ConnectX-10 NVLink-C2C",
    0xa2d2 => "BlueField",
    0xa2d3 => "BlueField VF",
    0xa2d6 => "BlueField-2",
    0xa2dc => "BlueField-3",
    0xa2df => "BlueField-4",
}

struct Mlx5Driver;

impl pci_driver::Driver for Mlx5Driver {
    type IdInfo = Adapter;
    type Data<'bound> = Device<'bound>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        let params = Params {
            adapter: info.map_or("unknown adapter", |adapter| adapter.0),
            cmd_timeout_ms: module_parameters::cmd_timeout_ms.value(),
            init_timeout_ms: module_parameters::init_timeout_ms.value(),
            comp_eqs: module_parameters::comp_eqs.value(),
        };
        Device::new(pdev, params)
    }

    fn unbind<'bound>(pdev: &'bound pci::Device<Core<'_>>, device: Pin<&Device<'bound>>) {
        device.unbind(pdev);
    }

    fn shutdown<'bound>(_: &'bound pci::Device<Core<'_>>, device: Pin<&Device<'bound>>) {
        device.shutdown();
    }

    fn error_detected<'bound>(
        _: &'bound pci::Device<Core<'_>>,
        device: Pin<&Device<'bound>>,
        channel: Channel,
    ) -> Verdict {
        device.error_detected(channel)
    }

    fn slot_reset<'bound>(
        _: &'bound pci::Device<Core<'_>>,
        device: Pin<&Device<'bound>>,
    ) -> Verdict {
        device.slot_reset()
    }

    fn error_resume<'bound>(_: &'bound pci::Device<Core<'_>>, device: Pin<&Device<'bound>>) {
        device.error_resume();
    }

    fn reset_prepare<'bound>(_: &'bound pci::Device<Core<'_>>, device: Pin<&Device<'bound>>) {
        device.reset_prepare();
    }

    fn reset_done<'bound>(_: &'bound pci::Device<Core<'_>>, device: Pin<&Device<'bound>>) {
        device.reset_done();
    }

    fn sriov_configure<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        device: Pin<&Device<'bound>>,
        number: u16,
    ) -> Result {
        device.sriov_configure(pdev, number)
    }

    fn suspend<'bound>(_: &'bound pci::Device<Core<'_>>, device: Pin<&Device<'bound>>) -> Result {
        device.suspend();
        Ok(())
    }

    fn resume<'bound>(_: &'bound pci::Device<Core<'_>>, device: Pin<&Device<'bound>>) -> Result {
        device.resume()
    }
}

/// What lives as long as the module.
#[pin_data]
struct Mlx5Module {
    // Dropped first: devices go before the directory that theirs are in.
    #[pin]
    _driver: driver::Registration<pci_driver::Adapter<Mlx5Driver>>,
    _debugfs: kapi::debugfs::Dir,
}

impl InPlaceModule for Mlx5Module {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _debugfs: kapi::debugfs::Dir::new(NAME),
            _driver <- driver::Registration::new(NAME, module),
        })
    }
}
