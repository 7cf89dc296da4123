// SPDX-License-Identifier: GPL-2.0
//! First process of the test guest, and its side of the command channel.
//!
//! As `/init` of an initramfs it mounts the usual file systems, loads the
//! modules listed there, goes on to a root file system on disk if the kernel's
//! command line has `mlx5_agent.root=<block device>`, and then carries out what
//! the host asks for over a virtio-serial port ([`mlx5_agent::proto`]). It
//! never ends; what it cannot do without makes it switch the guest off with a
//! line on the console.

mod children;
mod console;
mod exec;
mod init;
mod kexec;
mod kmsg;
mod serve;

use anyhow::{Context, Result};
use children::Children;
use mlx5_agent::proto::Power;
use std::sync::Arc;
use std::thread;

fn run(on_root: bool) -> Result<()> {
    init::mount_all();
    if !on_root {
        init::load_modules().context("loading the modules of the initramfs")?;
        if let Some(device) = init::option("mlx5_agent.root") {
            init::switch_root(&device)?;
        }
        init::settle()?;
    }
    // Only for prompts.
    let _ = rustix::system::sethostname(b"guest");
    let children = Arc::new(Children::default());
    let reaper = Arc::clone(&children);
    thread::Builder::new()
        .name("reaper".into())
        .spawn(move || reaper.reap())
        .context("starting the reaper")?;
    let log = Arc::new(kmsg::Log::open().context("/dev/kmsg")?);
    let follower = Arc::clone(&log);
    thread::Builder::new()
        .name("kmsg".into())
        .spawn(move || {
            if let Err(error) = follower.follow() {
                init::say(&format!("/dev/kmsg: {error}"));
            }
        })
        .context("starting the log reader")?;
    let port = init::open_port()?;
    serve::Server::serve(port, children, log).context("reading the port to the host")
}

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some(console::ARGUMENT) {
        let result = console::become_shell();
        eprintln!("mlx5-agent: no shell on the console: {result:?}");
        return;
    }
    if std::process::id() != 1 {
        eprintln!("mlx5-agent: runs as the first process of a test guest only");
        std::process::exit(2);
    }
    std::env::set_var(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    std::env::set_var("HOME", "/root");
    let result = run(argument.as_deref() == Some(init::ON_ROOT));
    init::say(&match result {
        Ok(()) => "the port to the host was closed; switching off".into(),
        Err(error) => format!("{error:#}; switching off"),
    });
    let error = serve::power(Power::Off);
    // The kernel panics when this process ends; it says so on the console.
    init::say(&format!("power off: {error}"));
}
