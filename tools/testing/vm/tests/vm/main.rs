// SPDX-License-Identifier: GPL-2.0
//! Tests that run in a virtual machine, on the kernel that the manifest in
//! `MLX5RS_MANIFEST` describes. Which tests there are depends on that kernel.

mod aer;
mod channel;
mod commands;
mod devlink;
mod driver;
mod events;
mod faults;
mod health;
mod kexec;
mod lifecycle;
mod pages;
mod queue;
mod silence;
mod sriov;
mod tracer;
mod tracer_rs;
mod trouble;
mod uctx;
mod upstream;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use mlx5_vm::keeper;
use mlx5_vm::manifest::{DeviceKind, Kernel, Manifest, VARIABLE};
use mlx5_vm::qemu::Hardware;
use mlx5_vm::vm::{with, Boot, Vm};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// All kernels.
const ALL: &[Kernel] = &[Kernel::Test, Kernel::Debian, Kernel::Kasan];
/// The small kernel with lockdep, where most tests run.
const TEST: &[Kernel] = &[Kernel::Test];
/// That and the one with KASAN.
const BOTH: &[Kernel] = &[Kernel::Test, Kernel::Kasan];
/// The one with KASAN and kmemleak, which is slow.
const KASAN: &[Kernel] = &[Kernel::Kasan];

/// Devices that a test may add, unless it says otherwise.
const PORTS: usize = 3;

/// Whether this is `make soak`, the long form.
fn is_long() -> bool {
    std::env::var_os("MLX5RS_SOAK").is_some()
}

/// In the long form all, in short one of so many.
fn in_short(n: usize) -> usize {
    if is_long() {
        1
    } else {
        n
    }
}

/// One test.
struct Test {
    name: &'static str,
    kernels: &'static [Kernel],
    /// Kernels on which it runs in the long form only.
    long: &'static [Kernel],
    run: fn(&Lab) -> Result<()>,
    /// Needs the Debian root in the manifest.
    root: bool,
}

impl Test {
    const fn new(
        name: &'static str,
        kernels: &'static [Kernel],
        run: fn(&Lab) -> Result<()>,
    ) -> Self {
        Self {
            name,
            kernels,
            long: &[],
            run,
            root: false,
        }
    }

    /// In the long form, on these kernels too.
    const fn long_on(mut self, kernels: &'static [Kernel]) -> Self {
        self.long = kernels;
        self
    }

    const fn on_root(mut self) -> Self {
        self.root = true;
        self
    }

    /// Whether the test can run with what `manifest` has. On a real card,
    /// nothing can be injected.
    fn fits(&self, manifest: &Manifest) -> bool {
        let kernel = &manifest.kernel;
        (self.kernels.contains(kernel) || is_long() && self.long.contains(kernel))
            && manifest.device == DeviceKind::Model
            && (manifest.guest_root.is_some() || !self.root)
    }
}

/// Where a test finds its guests.
struct Lab {
    manifest: Manifest,
    test: &'static str,
}

/// A guest of a test's own, like the shared one but for ports, which cost boot
/// time.
fn own() -> Boot {
    Boot {
        hardware: Hardware {
            ports: 2,
            ..Hardware::default()
        },
        ..shared()
    }
}

/// The guest that tests share.
fn shared() -> Boot {
    Boot {
        cmdline: vec!["kunit.enable=0".into()],
        modules: vec!["mlx5_core".into(), "aer_inject".into()],
        hardware: Hardware {
            ports: 12,
            ..Hardware::default()
        },
        ..Boot::default()
    }
}

impl Lab {
    /// A guest that other tests have used and will use.
    fn borrow(&self, ports: usize) -> Result<Vm> {
        self.borrow_as(&shared(), ports)
    }

    /// The same for a guest that was booted in another way.
    fn borrow_as(&self, boot: &Boot, ports: usize) -> Result<Vm> {
        let program = Path::new(env!("CARGO_BIN_EXE_mlx5-vm"));
        keeper::borrow(&self.manifest, self.test, boot, ports, program)
    }

    /// Runs `body` in a shared guest on the Debian root.
    fn on_root(&self, ports: usize, body: impl FnOnce(&mut Vm) -> Result<()>) -> Result<()> {
        let mut boot = Boot {
            root: true,
            ..shared()
        };
        boot.modules.push("ib_uverbs".into());
        with(self.borrow_as(&boot, ports)?, body)
    }

    /// Runs `body` in a shared guest, where it may add up to [`PORTS`] devices.
    fn shared(&self, body: impl FnOnce(&mut Vm) -> Result<()>) -> Result<()> {
        self.shared_with(PORTS, body)
    }

    /// The same for `ports` devices.
    fn shared_with(&self, ports: usize, body: impl FnOnce(&mut Vm) -> Result<()>) -> Result<()> {
        with(self.borrow(ports)?, body)
    }
}

fn tests() -> impl Iterator<Item = &'static Test> {
    [
        channel::TESTS,
        lifecycle::TESTS,
        commands::TESTS,
        devlink::TESTS,
        events::TESTS,
        faults::TESTS,
        health::TESTS,
        pages::TESTS,
        queue::TESTS,
        silence::TESTS,
        sriov::TESTS,
        tracer::TESTS,
        tracer_rs::TESTS,
        trouble::TESTS,
        uctx::TESTS,
        aer::TESTS,
        kexec::TESTS,
        upstream::TESTS,
    ]
    .into_iter()
    .flatten()
}

/// What to do about a test that has failed.
fn again(test: &Test, manifest: &Manifest) -> String {
    let target = if is_long() { "soak" } else { "vm-test" };
    let kernel = manifest.kernel.name();
    format!(
        "this test alone: make {target} KERNEL={kernel} T={}; by hand: make shell KERNEL={kernel}",
        test.name
    )
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Guests are heavy, and emulated.
    arguments.test_threads = Some(1);
    let manifest = match std::env::var_os(VARIABLE) {
        None => {
            eprintln!("no VM tests: {VARIABLE} is not set (`make vm-test` sets it)");
            None
        }
        Some(_) => match Manifest::from_env() {
            Ok(manifest) => Some(Arc::new(manifest)),
            Err(error) => {
                eprintln!("{error:#}");
                return ExitCode::FAILURE;
            }
        },
    };
    let trials = manifest.iter().flat_map(|manifest| {
        tests().filter(|test| test.fits(manifest)).map(|test| {
            let lab = Lab {
                manifest: Manifest::clone(manifest),
                test: test.name,
            };
            Trial::test(test.name, move || {
                (test.run)(&lab).map_err(|error| {
                    let again = again(test, &lab.manifest);
                    Failed::from(format!("{error:#}\n{again}"))
                })
            })
        })
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
