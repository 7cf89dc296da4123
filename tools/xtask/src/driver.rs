// SPDX-License-Identifier: GPL-2.0

//! The kernel module, built for one kernel out of the work tree.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cache::Cache;
use crate::kernel::Kernel;
use crate::project::Project;
use crate::toolbox::Toolbox;
use crate::ui::Step;

/// Builds the module and returns its path.
///
/// The objects go to a folder per kernel (`MO=`), so that three kernels do not
/// collide and the work tree stays clean.
///
/// # Errors
///
/// The build failed.
pub fn build(
    cache: &Cache,
    tools: &Toolbox,
    project: &Project,
    kernel: &Kernel,
    extra: &[&str],
) -> Result<PathBuf> {
    if !project.root.join("Kbuild").exists() {
        bail!("{}: no Kbuild file there", project.root.display());
    }
    let clippy = extra.iter().any(|arg| arg.starts_with("CLIPPY"));
    // Objects of clippy-driver must not pass for those of rustc.
    let name = format!("{}{}", kernel.flavour, if clippy { "-clippy" } else { "" });
    let output = project.target.join("kbuild").join(&name);
    // Another kernel (a new config, a new version) invalidates everything there.
    let stamp = output.join(".mlx5rs-kernel");
    let identity = kernel.build.to_string_lossy().into_owned();
    if fs::read_to_string(&stamp).ok().as_deref() != Some(&identity) && output.exists() {
        fs::remove_dir_all(&output).with_context(|| format!("remove {}", output.display()))?;
    }
    fs::create_dir_all(&output).with_context(|| format!("create {}", output.display()))?;
    fs::write(&stamp, identity)?;
    let mut args = vec![
        "-C".to_owned(),
        kernel.build.to_string_lossy().into_owned(),
        format!("M={}", project.root.display()),
        format!("MO={}", output.display()),
        format!("-j{}", project.jobs),
    ];
    args.extend(
        kernel
            .flavour
            .make_args()
            .iter()
            .chain(extra)
            .chain(&["modules"])
            .map(|a| (*a).to_owned()),
    );
    let log = project.log(&format!("driver-{name}"));
    let _ = fs::remove_file(&log);
    Step {
        what: &format!(
            "driver for the {} kernel{}",
            kernel.flavour,
            if clippy { ", clippy" } else { "" }
        ),
        usual: Duration::from_secs(30),
        log: &log,
        hint: "read the compiler's messages above",
    }
    .run(tools.command(
        "make",
        &output,
        &[cache.root(), &project.root, &project.target],
        &args,
    ))?;
    let module = output.join("mlx5_rs.ko");
    if !clippy && !module.exists() {
        bail!("the build ended well, but made no {}", module.display());
    }
    Ok(module)
}
