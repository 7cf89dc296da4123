// SPDX-License-Identifier: GPL-2.0

//! The host side: building the programs, running their tests and lints.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cache::{Cache, Key};
use crate::inputs::Generated;
use crate::project::Project;
use crate::tally::{run_tests, Tally};
use crate::ui::{foreground, output, say, Step};

/// The target that host programs are built for where it has to be named.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Version of cargo-nextest that is installed where there is none.
const NEXTEST: &str = "0.9.143";

/// Version of cargo-fuzz that is installed where there is none.
const FUZZ: &str = "0.13.1";

/// Cargo in the work tree, with what the build scripts need.
pub struct Host<'a> {
    /// The work tree.
    pub project: &'a Project,
    /// The cache, for the tools that have to be installed.
    pub cache: &'a Cache,
    /// Inputs that are made from the kernel source.
    pub generated: &'a Generated,
}

/// The programs that the VM runner needs.
pub struct Programs {
    /// The device model.
    pub model: PathBuf,
    /// The agent in the guest.
    pub agent: PathBuf,
    /// The VM runner.
    pub vm: PathBuf,
}

fn agent(project: &Project) -> Command {
    let mut cmd = project.cargo();
    cmd.args([
        "build",
        "--release",
        "--package",
        "mlx5-agent",
        "--bin",
        "mlx5-agent",
    ]);
    // Naming the target keeps the flag away from build scripts and proc-macros.
    cmd.args(["--target", TARGET]);
    cmd.env(
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
        "-C target-feature=+crt-static",
    );
    cmd
}

fn vm(project: &Project) -> Command {
    let mut cmd = project.cargo();
    cmd.args(["build", "--package", "mlx5-vm", "--bin", "mlx5-vm"]);
    cmd
}

/// Builds what needs nothing of the kernel source, to use the time in which the
/// toolbox is loaded. Errors are not shown: [`Host::programs`] meets them again.
pub fn build_ahead(project: &Project) {
    for mut cmd in [agent(project), vm(project)] {
        let _ = output(&mut cmd);
    }
}

impl Host<'_> {
    /// `cargo` with the variables set.
    pub fn cargo(&self) -> Command {
        let mut cmd = self.project.cargo();
        cmd.envs(self.generated.variables());
        cmd
    }

    fn step(&self, what: &str, usual: u64, log: &str, cmd: Command) -> Result<()> {
        let log = self.project.log(log);
        let _ = fs::remove_file(&log);
        Step {
            what,
            usual: Duration::from_secs(usual),
            log: &log,
            hint: "read the compiler's messages above",
        }
        .run(cmd)
    }

    /// Builds model, agent and VM runner.
    ///
    /// # Errors
    ///
    /// One does not compile.
    pub fn programs(&self) -> Result<Programs> {
        let mut cmd = self.cargo();
        cmd.args([
            "build",
            "--release",
            "--package",
            "mlx5-model",
            "--bin",
            "mlx5-model",
        ]);
        self.step("device model", 60, "model", cmd)?;
        self.step(
            "guest agent (needs the static libc of libc6-dev)",
            30,
            "agent",
            agent(self.project),
        )?;
        self.step("VM runner", 30, "vm", vm(self.project))?;
        let target = &self.project.target;
        let programs = Programs {
            model: target.join("release/mlx5-model"),
            agent: target.join(TARGET).join("release/mlx5-agent"),
            vm: target.join("debug/mlx5-vm"),
        };
        for path in [&programs.model, &programs.agent, &programs.vm] {
            fs::metadata(path).with_context(|| format!("find the program {}", path.display()))?;
        }
        Ok(programs)
    }

    /// A cargo subcommand: the installed one, or a pinned version in the cache.
    fn subcommand(&self, name: &str, version: &str) -> Result<Command> {
        let program = format!("cargo-{name}");
        let mut cmd = self.cargo();
        let there = Command::new(&program)
            .args([name, "--version"])
            .output()
            .is_ok_and(|out| out.status.success());
        if !there {
            let key = Key::new()
                .with("version", version)
                .with("rustc", output(Command::new("rustc").arg("--version"))?);
            let entry = self.cache.entry(&program, key, |partial, _| {
                let mut install = self.project.cargo();
                install.args(["install", "--locked", "--version", version, "--root"]);
                install.arg(partial).arg(&program);
                install.env("CARGO_TARGET_DIR", partial.join("build"));
                Step {
                    what: &format!("installing {program} {version} into the cache"),
                    usual: Duration::from_secs(300),
                    log: &self.cache.log(&program),
                    hint: "check that crates.io is reached, or install it by hand",
                }
                .run(install)?;
                fs::remove_dir_all(partial.join("build"))?;
                Ok(())
            })?;
            let path = std::env::var_os("PATH").unwrap_or_default();
            let paths = std::iter::once(entry.join("bin")).chain(std::env::split_paths(&path));
            cmd.env("PATH", std::env::join_paths(paths)?);
        }
        cmd.arg(name);
        Ok(cmd)
    }

    fn nextest(&self) -> Result<Command> {
        let mut cmd = self.subcommand("nextest", NEXTEST)?;
        cmd.arg("run");
        if std::env::var_os("CI").is_some() {
            cmd.args(["--profile", "ci"]);
        }
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            cmd.arg("--color=always");
        }
        Ok(cmd)
    }

    /// Tests of all host crates but those that boot a VM.
    ///
    /// # Errors
    ///
    /// The runner could not be started.
    pub fn tests(&self) -> Result<Tally> {
        let mut cmd = self.nextest()?;
        cmd.args([
            "--workspace",
            "--filterset",
            "not (package(mlx5-vm) and kind(test))",
        ]);
        run_tests(cmd)
    }

    /// The tests of the parsing and layout code under AddressSanitizer.
    ///
    /// # Errors
    ///
    /// The runner could not be started.
    pub fn sanitized(&self) -> Result<Tally> {
        let libdir = output(Command::new("rustc").args(["--print", "target-libdir"]))?;
        let runtime = Path::new(libdir.trim()).join("librustc-stable_rt.asan.a");
        let any = fs::read_dir(libdir.trim())?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .any(|name| name.ends_with("_rt.asan.a"));
        if !any {
            say(format!(
                "this rustc comes without AddressSanitizer's runtime (no {}): skipped; the \
                 toolchains of rustup have it",
                runtime.display()
            ));
            return Ok(Tally {
                skipped: 1,
                ..Tally::default()
            });
        }
        let mut cmd = self.cargo();
        cmd.args(["test", "--package", "mlx5-pure", "--target", TARGET]);
        cmd.env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("CARGO_TARGET_DIR", self.project.target.join("asan"));
        run_tests(cmd)
    }

    /// The VM tests.
    ///
    /// # Errors
    ///
    /// The runner could not be started.
    pub fn vm_tests(&self, manifest: &Path, filter: Option<&str>, soak: bool) -> Result<Tally> {
        let mut cmd = self.nextest()?;
        cmd.args(["--package", "mlx5-vm", "--filterset", "kind(test)"]);
        if let Some(filter) = filter {
            cmd.arg(filter);
        }
        cmd.env("MLX5RS_MANIFEST", manifest);
        if soak {
            cmd.env("MLX5RS_SOAK", "1");
        }
        run_tests(cmd)
    }

    /// Runs every fuzz target for `seconds` each.
    ///
    /// # Errors
    ///
    /// The targets do not build.
    pub fn fuzz(&self, seconds: u64) -> Result<Tally> {
        let dir = self.project.root.join("tools/fuzz");
        if !dir.join("Cargo.toml").exists() {
            bail!("{}: no fuzz targets there", dir.display());
        }
        let cargo_fuzz = || -> Result<Command> {
            let mut cmd = self.subcommand("fuzz", FUZZ)?;
            cmd.env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_DIR", self.project.target.join("fuzz"));
            Ok(cmd)
        };
        let fuzz_dir = || [OsStr::new("--fuzz-dir"), dir.as_os_str()];
        let targets = output(cargo_fuzz()?.arg("list").args(fuzz_dir()))?;
        let mut build = cargo_fuzz()?;
        build.arg("build").args(fuzz_dir());
        self.step("fuzz targets", 90, "fuzz", build)?;
        let mut tally = Tally::default();
        for target in targets.split_whitespace() {
            let artifacts = self.project.target.join("fuzz/artifacts").join(target);
            let corpus = self.project.target.join("fuzz/corpus").join(target);
            fs::create_dir_all(&artifacts)?;
            fs::create_dir_all(&corpus)?;
            let mut cmd = cargo_fuzz()?;
            cmd.arg("run").args(fuzz_dir()).arg(target).arg(&corpus);
            let seeds = dir.join("corpus").join(target);
            if seeds.is_dir() {
                cmd.arg(seeds);
            }
            cmd.arg("--").arg(format!("-max_total_time={seconds}"));
            cmd.arg(format!("-artifact_prefix={}/", artifacts.display()));
            let log = self.project.log(&format!("fuzz-{target}"));
            let _ = fs::remove_file(&log);
            let result = Step {
                what: &format!("fuzzing {target}"),
                usual: Duration::from_secs(seconds + 1),
                log: &log,
                hint: "the input that fails is in target/fuzz/artifacts; `cargo fuzz run` with it \
                       as an argument repeats the failure",
            }
            .run(cmd);
            tally += match result {
                Ok(()) => Tally::PASSED,
                Err(error) => {
                    say(format!("{error:#}"));
                    Tally::FAILED
                }
            };
        }
        if tally == Tally::default() {
            bail!("{}: no fuzz targets there", dir.display());
        }
        Ok(tally)
    }

    /// Criterion benches of the host crates.
    ///
    /// # Errors
    ///
    /// There is none, or one failed.
    pub fn bench(&self) -> Result<()> {
        let json = output(
            self.cargo()
                .args(["metadata", "--no-deps", "--format-version=1"]),
        )?;
        let metadata: serde_json::Value = serde_json::from_str(&json)?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let mut benches = packages.flat_map(|package| {
            let targets = package["targets"].as_array().into_iter().flatten();
            targets
                .filter(|target| target["kind"][0] == "bench")
                .map(move |_| &package["name"])
        });
        if benches.next().is_none() {
            say("no benches in the host crates yet");
            return Ok(());
        }
        foreground(self.cargo().args(["bench", "--workspace", "--benches"]))
    }

    /// clippy over the host crates.
    ///
    /// # Errors
    ///
    /// It found something.
    pub fn clippy(&self) -> Result<()> {
        let mut cmd = self.cargo();
        cmd.args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]);
        self.step("clippy, host crates", 60, "clippy", cmd)
    }

    /// rustdoc over the host crates.
    ///
    /// # Errors
    ///
    /// It found something.
    pub fn rustdoc(&self) -> Result<()> {
        let mut cmd = self.cargo();
        cmd.args([
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ]);
        cmd.env("RUSTDOCFLAGS", "-D warnings");
        self.step("rustdoc, host crates", 40, "rustdoc", cmd)
    }
}
