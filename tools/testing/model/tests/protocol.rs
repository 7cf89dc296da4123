// SPDX-License-Identifier: GPL-2.0

//! vfio-user as a hostile or clumsy client speaks it.

mod common;

use std::io::Read;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use common::*;
use nix::errno::Errno;
use nix::sys::signal::Signal;

fn error(e: Errno) -> u32 {
    e as i32 as u32
}

fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn first_words(reply: &Reply) -> Vec<u32> {
    reply
        .payload
        .chunks_exact(4)
        .map(|w| u32::from_ne_bytes(w.try_into().expect("4 bytes")))
        .collect()
}

#[test]
fn version_comes_first_and_is_0_0() {
    let model = Model::start();
    let mut v = Vfu::raw(&model);
    assert_eq!(v.call(CMD_RESET, &[], &[]).error, error(Errno::EPROTO));
    assert_eq!(
        v.call(CMD_VERSION, &[1, 0, 0, 0], &[]).error,
        error(Errno::EINVAL)
    );
    assert_eq!(
        v.call(CMD_VERSION, &[0, 0], &[]).error,
        error(Errno::EINVAL)
    );
    let reply = v.call(CMD_VERSION, &[0, 0, 1, 0], &[]);
    assert_eq!((reply.error, &reply.payload[..4]), (0, &[0; 4][..]));
    let json = reply.payload[4..]
        .strip_suffix(&[0])
        .expect("NUL at the end");
    let json: serde_json::Value = serde_json::from_slice(json).expect("JSON");
    assert!(json["capabilities"]["max_msg_fds"].as_u64() >= Some(1));
    assert_eq!(v.call(CMD_RESET, &[], &[]).error, 0);
}

#[test]
fn describes_regions_and_interrupts() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    let info = first_words(&v.call(4, &words(&[16, 0, 0, 0]), &[]));
    assert_eq!(
        info,
        [16, 0b11, 9, 5],
        "reset, PCI, regions, interrupt indexes"
    );
    assert_eq!(
        v.call(4, &words(&[8, 0, 0, 0]), &[]).error,
        error(Errno::EINVAL)
    );
    let mut sizes = Vec::new();
    for index in 0..9 {
        let r = first_words(&v.call(5, &words(&[32, 0, index, 0, 0, 0, 0, 0]), &[]));
        assert_eq!(r[2], index);
        sizes.push(r[4]);
    }
    assert_eq!(sizes, [32 << 20, 0, 0, 0, 0, 0, 0, 4096, 0]);
    assert_eq!(
        v.call(5, &words(&[32, 0, 9, 0, 0, 0, 0, 0]), &[]).error,
        error(Errno::EINVAL)
    );
    let counts: Vec<u32> = (0..5)
        .map(|i| first_words(&v.call(7, &words(&[16, 0, i, 0]), &[]))[3])
        .collect();
    assert_eq!(counts, [0, 0, 64, 0, 0]);
    assert_eq!(
        v.call(7, &words(&[16, 0, 5, 0]), &[]).error,
        error(Errno::EINVAL)
    );
}

#[test]
fn payloads_that_nobody_wants_are_drained() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    for command in [0, 6, 11, 12, 14, 15, 0xffff] {
        assert_eq!(
            v.call(command, &[0xaa; 5000], &[]).error,
            error(Errno::EOPNOTSUPP),
            "{command}"
        );
    }
    // Larger than anything that is kept.
    let big = vec![0x55; 5 << 20];
    assert_eq!(v.call(CMD_WRITE, &big, &[]).error, error(Errno::EMSGSIZE));
    assert_eq!(v.read(REGION_CONFIG, 0, 2), [0xb3, 0x15]);
}

#[test]
fn writes_without_reply_get_none_even_when_they_fail() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    v.post(REGION_BAR0, u64::MAX, &[0; 4]);
    v.post(9, 0, &[0; 4]);
    v.send(0x77, &[1; 100], &[], NO_REPLY);
    v.send(CMD_WRITE, &vec![0; 2 << 20], &[], NO_REPLY);
    v.post(REGION_BAR0, 0x10, &[0x12, 0x34, 0x56, 0x78]);
    // The id of the reply shows that it is the one to this read.
    assert_eq!(v.read32(0x10), 0x1234_5678);
}

#[test]
fn accesses_are_bounded() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    let access = |offset: u64, region: u32, count: u32| {
        let mut p = offset.to_ne_bytes().to_vec();
        p.extend(words(&[region, count]));
        p
    };
    for (offset, region, count) in [
        (4096, REGION_CONFIG, 1),
        (4095, REGION_CONFIG, 2),
        (u64::MAX, REGION_CONFIG, 2),
        (0, 1, 1),
        (0, 99, 1),
        (0, REGION_BAR0, u32::MAX),
        (0, REGION_BAR0, (1 << 20) + 1),
    ] {
        let reply = v.call(CMD_READ, &access(offset, region, count), &[]);
        assert_eq!(
            reply.error,
            error(Errno::EINVAL),
            "{offset:#x} {region} {count}"
        );
    }
    // Count and data disagree.
    let mut p = access(0, REGION_CONFIG, 8);
    p.extend([0; 4]);
    assert_eq!(v.call(CMD_WRITE, &p, &[]).error, error(Errno::EINVAL));
    assert_eq!(v.call(CMD_READ, &[0; 15], &[]).error, error(Errno::EINVAL));
    assert_eq!(v.read(REGION_CONFIG, 0, 4096).len(), 4096);
    assert_eq!(v.read(REGION_BAR0, 0, 1 << 20).len(), 1 << 20);
}

#[test]
fn messages_in_pieces() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    let mut message = v.header(CMD_READ, 32, 0);
    message.extend(0u64.to_ne_bytes());
    message.extend(words(&[REGION_CONFIG, 4]));
    for byte in message {
        v.stream.write_all(&[byte]).expect("write");
        std::thread::sleep(Duration::from_micros(200));
    }
    let reply = v.reply();
    assert_eq!(reply.payload[16..18], [0xb3, 0x15]);
    // Half a message does not keep the model from its control socket.
    let half = v.header(CMD_READ, 32, 0);
    v.stream.write_all(&half[..7]).expect("write");
    assert!(model.control().status().expect("status").connected);
}

#[test]
fn a_stream_that_makes_no_sense_is_closed_and_the_next_client_served() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    let message = v.header(CMD_RESET, 15, 0);
    v.stream.write_all(&message).expect("write");
    assert_eq!(v.stream.read(&mut [0; 16]).expect("read"), 0, "closed");
    // Clients wait for their turn.
    let first = Vfu::connect(&model);
    let mut second = Vfu::raw(&model);
    second.send(CMD_VERSION, &[0; 4], &[], 0);
    drop(first);
    assert_eq!(second.reply().error, 0);
}

#[test]
fn descriptors_of_a_message_are_all_taken() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    let ram = Ram::new();
    // More than are used: accepted, closed.
    let fds: Vec<&OwnedFd> = vec![&ram.fd; 8];
    assert_eq!(v.call(CMD_RESET, &[], &fds).error, 0);
    // More than the protocol allows.
    let fds: Vec<&OwnedFd> = vec![&ram.fd; 40];
    assert_eq!(v.call(CMD_RESET, &[], &fds).error, error(Errno::EMFILE));
    for _ in 0..2000 {
        assert_eq!(v.map(0, 4096, 0, Some(&ram.fd)), 0);
        assert_eq!(v.unmap(0, 4096, 0), 0);
    }
    // Descriptors for vectors that are not there.
    let fds: Vec<&OwnedFd> = vec![&ram.fd; 2];
    assert_eq!(v.set_msix(63, 2, &fds), error(Errno::EINVAL));
    assert_eq!(v.set_msix(0, 1, &fds), error(Errno::EINVAL));
    assert_eq!(v.set_msix(u32::MAX, 2, &[]), error(Errno::EINVAL));
}

#[test]
fn guest_memory_as_qemu_maps_it() {
    let model = Model::start();
    let mut v = Vfu::connect(&model);
    let ram = Ram::new();
    let half = Ram::SIZE / 2;
    assert_eq!(v.map(0, half, 0, Some(&ram.fd)), 0);
    assert_eq!(v.map(4 << 30, half, half, Some(&ram.fd)), 0);
    assert_eq!(
        v.map(0xfffc_0000, 0x4_0000, 0, None),
        0,
        "a ROM without descriptor"
    );
    assert_eq!(
        v.map(0x1000, 0x1000, 0, Some(&ram.fd)),
        error(Errno::EEXIST)
    );
    assert_eq!(v.map(8 << 30, 0, 0, Some(&ram.fd)), error(Errno::EINVAL));
    assert_eq!(
        v.map(8 << 30, 0x1000, Ram::SIZE, Some(&ram.fd)),
        error(Errno::EINVAL)
    );
    assert_eq!(v.map(u64::MAX, 2, 0, None), error(Errno::EINVAL));
    assert_eq!(v.unmap(1 << 40, 0x1000, 0), 0, "never mapped");
    assert_eq!(v.unmap(1 << 63, 1 << 63, 0), 0, "ends at 2^64");
    assert_eq!(
        v.unmap(0, 0x1000, 0),
        error(Errno::EINVAL),
        "cuts a mapping"
    );
    assert_eq!(model.control().status().expect("status").dma_maps, 3);
    assert_eq!(v.unmap(0, 0, 2), 0, "everything");
    assert_eq!(model.control().status().expect("status").dma_maps, 0);
    for page in 0..4000u64 {
        assert_eq!(
            v.map(page * 0x2000, 0x1000, page * 0x1000, Some(&ram.fd)),
            0
        );
    }
    assert_eq!(model.control().status().expect("status").dma_maps, 4000);
    drop(v);
    eventually("maps are forgotten", || {
        model.control().status().expect("status").dma_maps == 0
    });
}

#[test]
fn stops_on_signals_and_by_request() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let model = Model::start();
        let _idle = Vfu::connect(&model);
        let socket = model.socket();
        let path = model.dir.path().to_path_buf();
        assert_eq!(model.stop(signal), Some(0));
        assert!(!socket.exists() && !path.join("ctl.sock").exists());
    }
    let mut model = Model::start();
    model.control().run("quit").expect("quit");
    assert_eq!(model.exit(), Some(0));
}

#[test]
fn replaces_a_stale_socket_but_not_a_live_one() {
    let dir = tempfile::tempdir().expect("dir");
    for name in ["vfu.sock", "ctl.sock"] {
        // A listener that goes away leaves its file.
        drop(UnixListener::bind(dir.path().join(name)).expect("bind"));
    }
    let model = Model::start_in(dir, &[]);
    Vfu::connect(&model);
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_mlx5-model"))
        .arg("--socket")
        .arg(model.socket())
        .arg("--control")
        .arg(model.dir.path().join("other.sock"))
        .output()
        .expect("runs");
    assert!(!second.status.success());
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        text.contains("vfu.sock") && text.contains("another process"),
        "{text}"
    );
    Vfu::connect(&model);
}

/// The same through another implementation of the client side.
#[test]
fn the_crate_s_client_agrees() {
    let model = Model::start();
    let mut client = vfio_user::Client::new(&model.socket()).expect("negotiates");
    assert_eq!(client.region(0).map(|r| r.size), Some(32 << 20));
    assert_eq!(client.region(7).map(|r| r.size), Some(4096));
    assert_eq!(client.get_irq_info(2).expect("MSI-X").count, 64);
    let ram = Ram::new();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&ram.fd);
    client.dma_map(0, 0x1000, 0x10000, fd).expect("map");
    client.dma_unmap(0x1000, 0x10000).expect("unmap");
    let mut id = [0; 4];
    client.region_read(7, 0, &mut id).expect("read");
    assert_eq!(id, [0xb3, 0x15, 0x21, 0x10]);
    client.region_write(0, 0x10, &[1, 2, 3, 4]).expect("write");
    client.region_read(0, 0x10, &mut id).expect("read");
    assert_eq!(id, [1, 2, 3, 4]);
}
