// SPDX-License-Identifier: GPL-2.0

//! The loop: signals, the vfio-user client, the control clients, and timers. Nothing in it waits
//! but the one poll.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use log::info;
use nix::errno::Errno;
use nix::poll::ppoll;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::sys::signal::SigSet;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SfdFlags;
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeSpec;

use crate::control::server::Server as ControlServer;
use crate::control::verbs;
use crate::control::verbs::After;
use crate::device::Device;
use crate::vfio_user::server::Server;

/// Serves `device` until SIGTERM, SIGINT, or `quit` on the control socket. Prints `ready` when
/// both sockets listen.
///
/// # Errors
///
/// When a socket cannot be bound or the loop itself fails.
pub fn run(device: &mut Device, socket: &Path, control: &Path) -> Result<()> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTERM);
    mask.add(Signal::SIGINT);
    mask.thread_block()
        .context("cannot block SIGTERM and SIGINT")?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("signalfd")?;
    let mut server = Server::new(socket)
        .with_context(|| format!("cannot listen for QEMU on {}", socket.display()))?;
    let mut control = ControlServer::new(control)
        .with_context(|| format!("cannot listen for control on {}", control.display()))?;
    println!("ready");
    std::io::stdout().flush().context("stdout")?;

    loop {
        let [signal, vfio, control_ready] = wait(device, &signals, &server, &control)?;
        if signal && matches!(signals.read_signal(), Ok(Some(_))) {
            info!("stopped by a signal");
            return Ok(());
        }
        device.tick();
        if vfio {
            server.service(device);
        }
        if control_ready {
            let connected = server.connected();
            let mut after = After::Continue;
            control.service(|line| {
                let (reply, then) = verbs::execute(device, connected, line);
                if then == After::Quit {
                    after = then;
                }
                reply
            });
            if after == After::Quit {
                info!("stopped by quit");
                return Ok(());
            }
        }
    }
}

/// Waits for something to do; tells what: signal, vfio-user, control.
fn wait(
    device: &Device,
    signals: &SignalFd,
    server: &Server,
    control: &ControlServer,
) -> Result<[bool; 3]> {
    let (vfio, vfio_write) = server.poll_fd();
    let mut vfio_flags = PollFlags::POLLIN;
    vfio_flags.set(PollFlags::POLLOUT, vfio_write);
    let mut fds = vec![
        PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        PollFd::new(vfio, vfio_flags),
    ];
    fds.extend(control.poll_fds().map(|(fd, flags)| PollFd::new(fd, flags)));
    let busy = control.is_busy();
    let timeout = if busy {
        Some(Duration::ZERO)
    } else {
        device.wait()
    };
    match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok([false; 3]),
        Err(e) => return Err(e).context("poll"),
    }
    let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
    let control = busy || fds[2..].iter().any(ready);
    Ok([ready(&fds[0]), ready(&fds[1]), control])
}
