// SPDX-License-Identifier: GPL-2.0

//! Builds and starts everything of mlx5_rs. The top Makefile is its short form.

mod apt;
mod cache;
mod driver;
mod enter;
mod guest;
mod host;
mod inputs;
mod intree;
mod kernel;
mod project;
mod rdma_core;
mod tally;
mod toolbox;
mod ui;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{bail, Context, Result};
use clap::{Args, Parser, Subcommand};

use cache::Cache;
use host::{Effort, Host, VmTests};
use inputs::Generated;
use kernel::{Flavour, Kernel};
use mlx5_manifest::{DeviceKind, Manifest};
use project::Project;
use tally::{Report, Tally};
use toolbox::Toolbox;
use ui::{foreground, output, say, Step};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

/// Where something runs.
#[derive(Args, Clone)]
struct On {
    /// The kernel; the default depends on the command.
    #[arg(long)]
    kernel: Option<Flavour>,
    /// The device: `model`, or `vfio:<BDF>` for a real one.
    #[arg(long, default_value = "model")]
    device: DeviceKind,
}

#[derive(Subcommand)]
enum Task {
    /// Boot a VM in which mlx5_rs brings up a device.
    Run(On),
    /// The same, with a shell in the guest.
    Shell(On),
    /// Everything: lints, host tests, KUnit, VM tests on three kernels, short fuzzing.
    Test,
    /// Tests of the host crates, the pure ones also under AddressSanitizer.
    HostTest,
    /// KUnit suites in a VM.
    Kunit(On),
    /// VM tests.
    VmTest {
        #[command(flatten)]
        on: On,
        /// Only tests whose name contains this.
        #[arg(long)]
        filter: Option<String>,
    },
    /// Bring up the same device with the kernel's own mlx5_core and compare.
    Peer(On),
    /// Benches of the host crates.
    Bench,
    /// Every fuzz target, for some time or some inputs.
    Fuzz {
        /// Seconds per target.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Inputs per target, however long it takes.
        #[arg(long, conflicts_with = "seconds")]
        runs: Option<u64>,
    },
    /// VM tests in their long form, on the test kernel and on that with KASAN.
    Soak {
        #[command(flatten)]
        on: On,
        /// Only tests whose name contains this.
        #[arg(long)]
        filter: Option<String>,
    },
    /// Formatting, clippy and rustdoc, of host crates and kernel module.
    Lint(On),
    /// Format all Rust files.
    Fmt,
    /// Prepare a kernel and write its manifest, without running anything.
    Prepare(On),
    /// Build the driver inside a kernel tree, as its Kconfig and Kbuild allow.
    Intree,
    /// Print the variables that cargo needs when it is called by hand.
    Env,
    /// Run a command in the toolbox.
    Toolbox {
        /// The command.
        #[arg(last = true, required = true)]
        argv: Vec<OsString>,
    },
    /// Remove the cache: toolbox, kernels, guest image.
    CleanCache,
    /// Remove what was built in the work tree.
    Clean,
    #[command(hide = true)]
    Enter(enter::Enter),
}

/// Everything that most commands need.
struct Session {
    cache: Cache,
    tools: Toolbox,
    project: Project,
    source: PathBuf,
    generated: Generated,
    drivers: Drivers,
}

/// Modules that this session has built, by kernel. The lock is held while one is built.
#[derive(Default)]
struct Drivers([Mutex<Option<PathBuf>>; 3]);

impl Drivers {
    fn of(&self, flavour: Flavour) -> MutexGuard<'_, Option<PathBuf>> {
        let index = match flavour {
            Flavour::Debian => 0,
            Flavour::Test => 1,
            Flavour::Kasan => 2,
        };
        self.0[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn open() -> Result<Self> {
        Self::open_and(|_| ())
    }

    /// For commands that start a VM.
    fn open_for_vm() -> Result<Self> {
        Self::open_and(host::build_ahead)
    }

    /// Opens it, and does something else at the same time.
    fn open_and(meanwhile: impl FnOnce(&Project) + Send) -> Result<Self> {
        let project = Project::find()?;
        let cache = Cache::open()?;
        let (tools, source) = std::thread::scope(|scope| {
            scope.spawn(|| meanwhile(&project));
            let tools = Toolbox::open(&cache)?;
            let source = kernel::source(&cache, &tools)?;
            anyhow::Ok((tools, source))
        })?;
        let generated = Generated::make(&cache, &tools, &project, &source)?;
        Ok(Self {
            cache,
            tools,
            project,
            source,
            generated,
            drivers: Drivers::default(),
        })
    }

    fn host(&self) -> Host<'_> {
        Host {
            project: &self.project,
            cache: &self.cache,
            generated: &self.generated,
        }
    }

    fn kernel(&self, flavour: Flavour) -> Result<Kernel> {
        self.kernel_with(flavour, false)
    }

    fn kernel_with(&self, flavour: Flavour, nice: bool) -> Result<Kernel> {
        kernel::kernel(
            &self.cache,
            &self.tools,
            &self.project,
            &self.source,
            flavour,
            nice,
        )
    }

    /// The module for a kernel.
    fn driver(&self, kernel: &Kernel) -> Result<PathBuf> {
        let mut built = self.drivers.of(kernel.flavour);
        if let Some(path) = &*built {
            return Ok(path.clone());
        }
        let path = driver::build(&self.cache, &self.tools, &self.project, kernel, &[])?;
        *built = Some(path.clone());
        Ok(path)
    }

    /// Makes all that a VM needs and writes the manifest.
    fn prepare(&self, flavour: Flavour, device: &DeviceKind, guest: bool) -> Result<Ready> {
        let host = self.host();
        let (kernel, driver, programs) = std::thread::scope(|scope| {
            let programs = scope.spawn(|| host.programs());
            let kernel = self.kernel(flavour)?;
            let driver = self.driver(&kernel)?;
            let programs = programs
                .join()
                .expect("the building thread does not panic")?;
            anyhow::Ok((kernel, driver, programs))
        })?;
        let guest_root = if guest {
            Some(guest::image(&self.cache, &self.tools)?)
        } else {
            None
        };
        let path = self.project.manifest(flavour.name());
        Manifest {
            kernel: flavour.into(),
            release: kernel.release,
            image: kernel.image,
            modules_root: kernel.modules_root,
            driver,
            qemu: self.tools.qemu(),
            busybox: self.tools.path("/usr/bin/busybox"),
            guest_root,
            model: programs.model,
            agent: programs.agent,
            device: device.clone(),
            path: PathBuf::new(),
        }
        .write(&path)?;
        say(format!("manifest: {}", self.project.short(&path)));
        Ok(Ready {
            manifest: path,
            vm: programs.vm,
        })
    }

    fn vm(&self, on: &On, default: Flavour, guest: bool, task: &str) -> Result<()> {
        let ready = self.prepare(on.kernel.unwrap_or(default), &on.device, guest)?;
        foreground(&mut ready.command(task))
    }

    fn vm_test(&self, on: &On, choice: VmTests<'_>) -> Result<Tally> {
        let ready = self.prepare(on.kernel.unwrap_or(Flavour::Test), &on.device, true)?;
        self.host().vm_tests(&ready.manifest, choice)
    }

    fn kunit(&self, on: &On) -> Result<Tally> {
        let flavour = on.kernel.unwrap_or(Flavour::Test);
        if flavour == Flavour::Debian {
            bail!("the stock kernel is built without KUnit: use KERNEL=test or KERNEL=kasan");
        }
        let ready = self.prepare(flavour, &on.device, false)?;
        tally::run_tests(ready.command("kunit"))
    }

    /// All Rust files that git knows or could know.
    fn rust_files(&self) -> Result<Vec<String>> {
        let list = output(
            Command::new("git")
                .args([
                    "ls-files",
                    "--cached",
                    "--others",
                    "--exclude-standard",
                    "*.rs",
                ])
                .current_dir(&self.project.root),
        )?;
        let exists = |file: &&str| self.project.root.join(file).exists();
        Ok(list.lines().filter(exists).map(str::to_owned).collect())
    }

    fn rustfmt(&self, check: bool) -> Result<()> {
        let mut args = vec!["--edition".to_owned(), "2021".to_owned()];
        if check {
            args.push("--check".to_owned());
        }
        args.extend(self.rust_files()?);
        // The toolbox's version, so that every machine formats alike.
        Step {
            what: "rustfmt",
            usual: std::time::Duration::from_secs(3),
            log: &self.project.log("rustfmt"),
            hint: "`make fmt` formats all files",
        }
        .run(self.tools.command(
            "rustfmt",
            &self.project.root,
            &[&self.project.root],
            &args,
        ))
    }

    fn lint(&self, flavour: Flavour) -> Result<Tally> {
        let host = self.host();
        let mut tally = Tally::default();
        let mut check = |result| tally += Tally::of_check(result);
        check(self.rustfmt(true));
        check(host.clippy());
        check(host.rustdoc());
        check(self.kernel_clippy(flavour));
        Ok(tally)
    }

    fn kernel_clippy(&self, flavour: Flavour) -> Result<()> {
        let kernel = self.kernel(flavour)?;
        driver::build(
            &self.cache,
            &self.tools,
            &self.project,
            &kernel,
            &["CLIPPY=1", "KRUSTFLAGS=-Dwarnings"],
        )
        .map(drop)
    }
}

/// What is needed to start a VM.
struct Ready {
    manifest: PathBuf,
    vm: PathBuf,
}

impl Ready {
    fn command(&self, task: &str) -> Command {
        let mut cmd = Command::new(&self.vm);
        cmd.arg(task).env("MLX5RS_MANIFEST", &self.manifest);
        cmd
    }
}

fn host_tests(session: &Session, report: &mut Report) {
    let host = session.host();
    report.stage("host tests", || host.tests());
    report.stage("host tests, documentation", || host.doc_tests());
    report.stage("host tests, AddressSanitizer", || host.sanitized());
}

fn test_everything() -> Result<()> {
    let session = Session::open_for_vm()?;
    let mut report = Report::default();
    std::thread::scope(|scope| {
        // What takes longest is made in the background, in the order in which it is
        // needed. Whoever needs it first waits for it, or makes it again and shows
        // the error.
        scope.spawn(|| {
            for flavour in [Flavour::Debian, Flavour::Test, Flavour::Kasan] {
                let kernel = session.kernel_with(flavour, true);
                let _ = kernel.and_then(|kernel| session.driver(&kernel));
            }
        });
        scope.spawn(|| guest::image(&session.cache, &session.tools).map(drop));
        report.stage("lint", || session.lint(Flavour::Debian));
        host_tests(&session, &mut report);
        report.stage("fuzz", || session.host().fuzz(Effort::Seconds(5)));
        for flavour in [Flavour::Debian, Flavour::Test, Flavour::Kasan] {
            let on = On {
                kernel: Some(flavour),
                device: DeviceKind::Model,
            };
            if flavour == Flavour::Test {
                // The code of the KUnit suites, which the stock kernel leaves out.
                report.stage("lint, KUnit code", || {
                    Ok(Tally::of_check(session.kernel_clippy(flavour)))
                });
            }
            if flavour != Flavour::Debian {
                report.stage(format!("KUnit, {flavour} kernel"), || session.kunit(&on));
            }
            report.stage(format!("VM tests, {flavour} kernel"), || {
                session.vm_test(&on, VmTests::AfterHostTests)
            });
        }
    });
    report.finish()
}

fn only(name: &str, run: impl FnOnce() -> Result<Tally>) -> Result<()> {
    let mut report = Report::default();
    report.stage(name, run);
    report.finish()
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Enter(enter) => enter.run(),
        Task::CleanCache => Cache::clean(),
        Task::Clean => {
            let project = Project::find()?;
            for dir in ["kbuild", "mlx5rs", "asan", "fuzz"] {
                cache::remove_tree(&project.target.join(dir))?;
            }
            foreground(project.cargo().arg("clean"))
        }
        Task::Run(on) => Session::open_for_vm()?.vm(&on, Flavour::Debian, false, "run"),
        Task::Shell(on) => Session::open_for_vm()?.vm(&on, Flavour::Debian, true, "shell"),
        Task::Peer(on) => Session::open_for_vm()?.vm(&on, Flavour::Debian, false, "peer"),
        Task::Prepare(on) => {
            let session = Session::open_for_vm()?;
            session
                .prepare(on.kernel.unwrap_or(Flavour::Debian), &on.device, false)
                .map(drop)
        }
        Task::Kunit(on) => {
            let session = Session::open_for_vm()?;
            only("KUnit", || session.kunit(&on))
        }
        Task::VmTest { on, filter } => {
            let session = Session::open_for_vm()?;
            only("VM tests", || {
                session.vm_test(&on, VmTests::Matching(filter.as_deref()))
            })
        }
        Task::Soak { on, filter } => {
            let session = Session::open_for_vm()?;
            let mut report = Report::default();
            let kernels = match on.kernel {
                Some(kernel) => vec![kernel],
                None => vec![Flavour::Test, Flavour::Kasan],
            };
            for kernel in kernels {
                let on = On {
                    kernel: Some(kernel),
                    device: on.device.clone(),
                };
                report.stage(format!("VM tests, long, {kernel} kernel"), || {
                    session.vm_test(&on, VmTests::Long(filter.as_deref()))
                });
            }
            report.finish()
        }
        Task::HostTest => {
            let session = Session::open()?;
            let mut report = Report::default();
            host_tests(&session, &mut report);
            report.finish()
        }
        Task::Fuzz { seconds, runs } => {
            let session = Session::open()?;
            let effort = runs.map_or(Effort::Seconds(seconds), Effort::Runs);
            only("fuzz", || session.host().fuzz(effort))
        }
        Task::Bench => Session::open()?.host().bench(),
        Task::Lint(on) => {
            let session = Session::open()?;
            only("lint", || {
                session.lint(on.kernel.unwrap_or(Flavour::Debian))
            })
        }
        Task::Fmt => Session::open()?.rustfmt(false),
        Task::Intree => {
            let session = Session::open()?;
            intree::build(
                &session.cache,
                &session.tools,
                &session.project,
                &session.source,
            )
        }
        Task::Env => {
            let session = Session::open()?;
            let rdma_core = rdma_core::rdma_core(&session.cache)?;
            let variables = session.generated.variables();
            for (name, value) in variables
                .into_iter()
                .chain([(rdma_core::VARIABLE, rdma_core.as_os_str())])
            {
                println!("export {name}='{}'", value.to_string_lossy());
            }
            Ok(())
        }
        Task::Toolbox { argv } => {
            let session = Session::open()?;
            let [program, args @ ..] = argv.as_slice() else {
                bail!("no command given")
            };
            let program = program.to_str().context("the command is not UTF-8")?;
            let cwd = std::env::current_dir()?;
            let binds: [&Path; 3] = [session.cache.root(), &session.project.root, &cwd];
            foreground(&mut session.tools.command(program, &cwd, &binds, args))
        }
        Task::Test => test_everything(),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("[mlx5_rs] error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
