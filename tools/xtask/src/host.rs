// SPDX-License-Identifier: GPL-2.0

//! The host side: building the programs, running their tests and lints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cache::{Cache, Key};
use crate::inputs::Generated;
use crate::project::Project;
use crate::rdma_core;
use crate::tally::{run_tests, Tally};
use crate::ui::{foreground, output, say, Step};

/// The target that host programs are built for where it has to be named.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Version of cargo-nextest that is installed where there is none.
const NEXTEST: &str = "0.9.143";

/// What cargo-fuzz gives rustc for libFuzzer with AddressSanitizer.
const FUZZ_FLAGS: [&str; 10] = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Zsanitizer=address",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Ccodegen-units=1",
];

/// True when the toolchain has AddressSanitizer's runtime.
fn has_asan() -> Result<bool> {
    let libdir = output(Command::new("rustc").args(["--print", "target-libdir"]))?;
    Ok(fs::read_dir(libdir.trim())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .any(|name| name.ends_with("_rt.asan.a")))
}

fn no_asan() -> Tally {
    say(
        "this rustc comes without AddressSanitizer's runtime: skipped; rustup's toolchains have it",
    );
    Tally {
        skipped: 1,
        ..Tally::default()
    }
}

/// Names of the targets of one kind in the output of `cargo metadata`.
fn targets_of_kind(metadata: &str, kind: &str) -> Result<Vec<String>> {
    let metadata: serde_json::Value =
        serde_json::from_str(metadata).context("read what `cargo metadata` printed")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter(|target| target["kind"][0] == kind)
        .filter_map(|target| Some(target["name"].as_str()?.to_owned()))
        .collect())
}

/// The number of runs in what libFuzzer prints with `-print_final_stats=1`.
fn executed(log: &str) -> Option<u64> {
    log.lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .and_then(|number| number.trim().parse().ok())
}

/// How long a fuzz target runs.
#[derive(Clone, Copy)]
pub enum Effort {
    /// For so many seconds.
    Seconds(u64),
    /// So many inputs.
    Runs(u64),
}

/// Cargo in the work tree, with what the build scripts need.
pub struct Host<'a> {
    /// The work tree.
    pub project: &'a Project,
    /// The cache, for the tools that have to be installed.
    pub cache: &'a Cache,
    /// Inputs that are made from the kernel source.
    pub generated: &'a Generated,
}

/// Which VM tests run.
#[derive(Clone, Copy)]
pub enum VmTests<'a> {
    /// All, in one go with the host tests.
    AfterHostTests,
    /// Those with this in their name, or all.
    Matching(Option<&'a str>),
    /// The same in their long form.
    Long(Option<&'a str>),
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

/// Builds what needs nothing of the kernel source, to use the time in which the
/// toolbox is loaded. An error is not shown: [`Host::programs`] meets it again.
pub fn build_ahead(project: &Project) {
    let _ = output(&mut agent(project));
}

impl Host<'_> {
    /// `cargo` with the variables set.
    pub fn cargo(&self) -> Command {
        let mut cmd = self.project.cargo();
        cmd.envs(self.generated.variables());
        cmd
    }

    /// The same for the whole workspace, whose crates need rdma-core too.
    fn workspace(&self) -> Result<Command> {
        let mut cmd = self.cargo();
        cmd.env(rdma_core::VARIABLE, rdma_core::rdma_core(self.cache)?);
        Ok(cmd)
    }

    /// As CI has it, or people.
    fn profile() -> &'static str {
        if std::env::var_os("CI").is_some() {
            "ci"
        } else {
            "default"
        }
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
        let mut cmd = self.cargo();
        cmd.args(["build", "--package", "mlx5-vm", "--bin", "mlx5-vm"]);
        self.step("VM runner", 30, "vm", cmd)?;
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

    /// `cmd`, which is cargo, with a subcommand: the installed one, or a pinned version in the cache.
    fn subcommand(&self, mut cmd: Command, name: &str, version: &str) -> Result<Command> {
        let program = format!("cargo-{name}");
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
                    hint: "check that cargo reaches its registry, or install it by hand",
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

    fn nextest(&self, cargo: Command) -> Result<Command> {
        let mut cmd = self.subcommand(cargo, "nextest", NEXTEST)?;
        cmd.args(["run", "--no-fail-fast"]);
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
        let mut cmd = self.nextest(self.workspace()?)?;
        cmd.args([
            "--profile",
            Self::profile(),
            "--workspace",
            "--filterset",
            "not (package(mlx5-vm) and kind(test))",
        ]);
        run_tests(cmd)
    }

    /// The examples in the documentation of the host crates, which nextest does not run.
    ///
    /// # Errors
    ///
    /// The runner could not be started.
    pub fn doc_tests(&self) -> Result<Tally> {
        let mut cmd = self.workspace()?;
        cmd.args(["test", "--workspace", "--doc"]);
        run_tests(cmd)
    }

    /// The tests of the parsing and layout code under AddressSanitizer.
    ///
    /// # Errors
    ///
    /// The runner could not be started.
    pub fn sanitized(&self) -> Result<Tally> {
        if !has_asan()? {
            return Ok(no_asan());
        }
        let mut cmd = self.cargo();
        // Not the examples in documentation: rustdoc links them without the runtime.
        cmd.args(["test", "--package", "mlx5-pure", "--lib", "--tests"]);
        cmd.args(["--no-fail-fast", "--target", TARGET]);
        cmd.env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address --cfg sanitized")
            .env("CARGO_TARGET_DIR", self.project.target.join("asan"));
        run_tests(cmd)
    }

    /// The VM tests.
    ///
    /// # Errors
    ///
    /// The runner could not be started.
    pub fn vm_tests(&self, manifest: &Path, choice: VmTests<'_>) -> Result<Tally> {
        let mut cmd = self.nextest(match choice {
            VmTests::AfterHostTests => self.workspace()?,
            VmTests::Matching(_) | VmTests::Long(_) => self.cargo(),
        })?;
        cmd.env("MLX5RS_MANIFEST", manifest);
        let profile = match choice {
            VmTests::AfterHostTests | VmTests::Matching(_) => Self::profile(),
            VmTests::Long(_) => "soak",
        };
        cmd.args(["--profile", profile]);
        match choice {
            // The same selection of packages as in the host tests, so that cargo
            // finds everything built.
            VmTests::AfterHostTests => {
                cmd.args([
                    "--workspace",
                    "--filterset",
                    "package(mlx5-vm) and kind(test)",
                ]);
            }
            VmTests::Matching(filter) => {
                cmd.args(["--package", "mlx5-vm", "--filterset", "kind(test)"]);
                cmd.args(filter);
            }
            VmTests::Long(filter) => {
                cmd.args(["--package", "mlx5-vm", "--filterset", "kind(test)"]);
                cmd.args(filter);
                cmd.env("MLX5RS_SOAK", "1");
            }
        }
        run_tests(cmd)
    }

    /// Runs every fuzz target, each as long as `effort` says.
    ///
    /// The targets are plain libFuzzer programs, built with the flags that cargo-fuzz
    /// uses; `cargo fuzz` works on the same folder where it is installed.
    ///
    /// # Errors
    ///
    /// The targets do not build, or this toolchain lacks the sanitizer.
    pub fn fuzz(&self, effort: Effort) -> Result<Tally> {
        let dir = self.project.root.join("tools/fuzz");
        let manifest = dir.join("Cargo.toml");
        let target_dir = self.project.target.join("fuzz");
        if !has_asan()? {
            return Ok(no_asan());
        }
        let cargo = |command: &str| {
            let mut cmd = self.cargo();
            cmd.arg(command)
                .arg("--manifest-path")
                .arg(&manifest)
                .env("CARGO_TARGET_DIR", &target_dir);
            cmd
        };
        let metadata = output(cargo("metadata").args(["--no-deps", "--format-version=1"]))?;
        let targets = targets_of_kind(&metadata, "bin")?;
        if targets.is_empty() {
            bail!("{}: no fuzz targets there", manifest.display());
        }
        let mut build = cargo("build");
        build
            .args(["--release", "--bins", "--target", TARGET])
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", FUZZ_FLAGS.join(" "));
        self.step(
            "fuzz targets (libFuzzer needs a C++ compiler)",
            60,
            "fuzz",
            build,
        )?;
        let fuzz = |target: &str| -> Result<()> {
            let artifacts = target_dir.join("artifacts").join(target);
            let corpus = target_dir.join("corpus").join(target);
            fs::create_dir_all(&artifacts)?;
            fs::create_dir_all(&corpus)?;
            let mut cmd = Command::new(target_dir.join(TARGET).join("release").join(target));
            cmd.arg(&corpus).current_dir(&dir);
            let seeds = dir.join("corpus").join(target);
            if seeds.is_dir() {
                cmd.arg(seeds);
            }
            let (limit, usual) = match effort {
                Effort::Seconds(seconds) => (format!("-max_total_time={seconds}"), seconds + 1),
                // As of 20000 runs a second.
                Effort::Runs(runs) => (format!("-runs={runs}"), runs / 20_000 + 1),
            };
            cmd.arg(limit)
                .arg(format!("-artifact_prefix={}/", artifacts.display()))
                .args(["-print_final_stats=1", "-timeout=5", "-rss_limit_mb=2048"]);
            let log = self.project.log(&format!("fuzz-{target}"));
            let _ = fs::remove_file(&log);
            Step {
                what: &format!("fuzzing {target}"),
                usual: Duration::from_secs(usual),
                log: &log,
                hint: "the input that fails is named above; the same program with it as the only \
                       argument repeats the failure",
            }
            .run(cmd)?;
            if let Some(runs) = executed(&fs::read_to_string(&log)?) {
                say(format!("fuzzing {target}: {runs} runs, clean"));
            }
            Ok(())
        };
        let mut tally = Tally::default();
        for some in targets.chunks(self.project.jobs) {
            std::thread::scope(|scope| {
                let running: Vec<_> = some
                    .iter()
                    .map(|target| scope.spawn(|| fuzz(target)))
                    .collect();
                for thread in running {
                    tally +=
                        Tally::of_check(thread.join().expect("the waiting thread does not panic"));
                }
            });
        }
        Ok(tally)
    }

    /// Criterion benches of the host crates.
    ///
    /// # Errors
    ///
    /// There is none, or one failed.
    pub fn bench(&self) -> Result<()> {
        let metadata = output(
            self.cargo()
                .args(["metadata", "--no-deps", "--format-version=1"]),
        )?;
        if targets_of_kind(&metadata, "bench")?.is_empty() {
            say("no benches in the host crates yet");
            return Ok(());
        }
        foreground(
            self.workspace()?
                .args(["bench", "--workspace", "--benches"]),
        )
    }

    /// clippy over the host crates.
    ///
    /// # Errors
    ///
    /// It found something.
    pub fn clippy(&self) -> Result<()> {
        let mut cmd = self.workspace()?;
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
        let mut cmd = self.workspace()?;
        cmd.args([
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ]);
        // Private items are documented too, so links to them lead somewhere.
        cmd.env(
            "RUSTDOCFLAGS",
            "-D warnings -A rustdoc::private-intra-doc-links",
        );
        self.step("rustdoc, host crates", 40, "rustdoc", cmd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_targets() {
        let json = r#"{"packages":[{"name":"a","targets":[{"name":"x","kind":["lib"]},
            {"name":"y","kind":["bench"]}]},{"name":"b","targets":[{"name":"z","kind":["bench"]}]}]}"#;
        assert_eq!(targets_of_kind(json, "bench").unwrap(), ["y", "z"]);
        assert!(targets_of_kind(json, "bin").unwrap().is_empty());
        assert!(targets_of_kind("{", "bin").is_err());
    }

    #[test]
    fn runs_of_a_fuzz_target() {
        let log =
            "Done 5 runs in 1 second(s)\nstat::number_of_executed_units: 5\nstat::slowest: 0\n";
        assert_eq!(executed(log), Some(5));
        assert_eq!(executed("stat::number_of_executed_units: many"), None);
    }
}
