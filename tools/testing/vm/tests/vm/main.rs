// SPDX-License-Identifier: GPL-2.0
//! Tests that run in a virtual machine, on the kernel that the manifest in
//! `MLX5RS_MANIFEST` describes. Which tests there are depends on that kernel.

mod aer;
mod channel;
mod commands;
mod driver;
mod events;
mod faults;
mod kexec;
mod lifecycle;
mod pages;
mod trouble;
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
/// The small kernel with lockdep, where most tests run. In the long form that
/// with KASAN and kmemleak runs them as well.
const TEST: &[Kernel] = &[Kernel::Test];
/// Both of them, always.
const BOTH: &[Kernel] = &[Kernel::Test, Kernel::Kasan];
/// That with KASAN, always.
const KASAN: &[Kernel] = &[Kernel::Kasan];

/// Devices that a test may add, unless it says otherwise.
const PORTS: usize = 3;

/// Whether this is `make soak`, the long form.
fn is_long() -> bool {
    std::env::var_os("MLX5RS_SOAK").is_some()
}

/// One test.
struct Test {
    name: &'static str,
    kernels: &'static [Kernel],
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
            run,
            root: false,
        }
    }

    const fn on_root(mut self) -> Self {
        self.root = true;
        self
    }

    /// Whether the test can run with what `manifest` has. On a real card,
    /// nothing can be injected.
    fn fits(&self, manifest: &Manifest) -> bool {
        let here = |kernel| self.kernels.contains(&kernel);
        // In the long form the slow kernel has time for everything.
        let slow = is_long() && manifest.kernel == Kernel::Kasan && here(Kernel::Test);
        (here(manifest.kernel) || slow)
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
        let program = Path::new(env!("CARGO_BIN_EXE_mlx5-vm"));
        keeper::borrow(&self.manifest, self.test, &shared(), ports, program)
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
        events::TESTS,
        faults::TESTS,
        pages::TESTS,
        trouble::TESTS,
        aer::TESTS,
        kexec::TESTS,
        upstream::TESTS,
    ]
    .into_iter()
    .flatten()
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
                (test.run)(&lab).map_err(|error| Failed::from(format!("{error:#}")))
            })
        })
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
