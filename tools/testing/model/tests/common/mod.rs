// SPDX-License-Identifier: GPL-2.0

//! A guest and a driver by hand: speaks vfio-user to a model process, with memory in a memfd.
// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::IoSlice;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use mlx5_model::checks::Rule;
use mlx5_model::control::client::Client as Control;
use mlx5_model::ifc;
use mlx5_model::ifc::Bits;
use nix::sys::eventfd::EfdFlags;
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;
use nix::sys::signal::kill;
use nix::sys::signal::Signal;
use nix::sys::socket::sendmsg;
use nix::sys::socket::ControlMessage;
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;
use tempfile::TempDir;

pub use mlx5_model::bar;
pub use mlx5_model::field;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const CMD_VERSION: u16 = 1;
pub const CMD_DMA_MAP: u16 = 2;
pub const CMD_DMA_UNMAP: u16 = 3;
pub const CMD_SET_IRQS: u16 = 8;
pub const CMD_READ: u16 = 9;
pub const CMD_WRITE: u16 = 10;
pub const CMD_RESET: u16 = 13;
pub const NO_REPLY: u32 = 1 << 4;

pub const REGION_BAR0: u32 = 0;
pub const REGION_CONFIG: u32 = 7;

/// Repeats `check` until it is true.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A model process.
pub struct Model {
    child: Child,
    pub dir: TempDir,
}

impl Model {
    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(args: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("dir"), args)
    }

    pub fn start_in(dir: TempDir, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5-model"))
            .arg("--socket")
            .arg(dir.path().join("vfu.sock"))
            .arg("--control")
            .arg(dir.path().join("ctl.sock"))
            .args(["--log", "debug"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the model starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("stdout");
        assert_eq!(line, "ready\n");
        Self { child, dir }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("vfu.sock")
    }

    pub fn control(&self) -> Control {
        Control::connect(&self.dir.path().join("ctl.sock")).expect("control socket")
    }

    /// Sends a signal; returns the exit code and the folder.
    pub fn stop(mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("signal");
        self.exit()
    }

    /// Waits for the end; returns the exit code.
    pub fn exit(&mut self) -> Option<i32> {
        let mut code = None;
        eventually("exit of the model", || {
            match self.child.try_wait().expect("wait") {
                Some(status) => {
                    code = status.code();
                    true
                }
                None => false,
            }
        });
        code
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reply: error number and payload.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub error: u32,
    pub payload: Vec<u8>,
}

/// The client's side of vfio-user.
pub struct Vfu {
    pub stream: UnixStream,
    id: u16,
}

impl Vfu {
    /// Connects, without a word.
    pub fn raw(model: &Model) -> Self {
        let stream = UnixStream::connect(model.socket()).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Self { stream, id: 0 }
    }

    /// Connects and negotiates.
    pub fn connect(model: &Model) -> Self {
        let mut v = Self::raw(model);
        let reply = v.call(CMD_VERSION, b"\0\0\0\0{}\0", &[]);
        assert_eq!(reply.error, 0);
        assert_eq!(reply.payload[..4], [0; 4], "version 0.0");
        v
    }

    pub fn header(&mut self, command: u16, size: usize, flags: u32) -> Vec<u8> {
        self.id = self.id.wrapping_add(1);
        let mut h = Vec::new();
        h.extend(self.id.to_ne_bytes());
        h.extend(command.to_ne_bytes());
        h.extend((size as u32).to_ne_bytes());
        h.extend(flags.to_ne_bytes());
        h.extend(0u32.to_ne_bytes());
        h
    }

    pub fn send(&mut self, command: u16, payload: &[u8], fds: &[&OwnedFd], flags: u32) {
        let mut message = self.header(command, 16 + payload.len(), flags);
        message.extend_from_slice(payload);
        let raw: Vec<i32> = fds.iter().map(|f| f.as_raw_fd()).collect();
        let cmsg = [ControlMessage::ScmRights(&raw)];
        let cmsg = if fds.is_empty() { &[][..] } else { &cmsg[..] };
        let iov = [IoSlice::new(&message)];
        let fd = self.stream.as_raw_fd();
        let mut sent = sendmsg::<()>(fd, &iov, cmsg, MsgFlags::empty(), None).expect("sendmsg");
        while sent < message.len() {
            let iov = [IoSlice::new(&message[sent..])];
            sent += sendmsg::<()>(fd, &iov, &[], MsgFlags::empty(), None).expect("sendmsg");
        }
    }

    pub fn reply(&mut self) -> Reply {
        let mut h = [0; 16];
        self.stream.read_exact(&mut h).expect("reply");
        let word = |at: usize| u32::from_ne_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        assert_eq!(u16::from_ne_bytes([h[0], h[1]]), self.id, "id of the reply");
        assert_eq!(word(8) & 0xf, 1, "a reply");
        assert_eq!(word(8) >> 5 & 1, u32::from(word(12) != 0), "error flag");
        let mut payload = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut payload).expect("reply");
        Reply {
            error: word(12),
            payload,
        }
    }

    pub fn call(&mut self, command: u16, payload: &[u8], fds: &[&OwnedFd]) -> Reply {
        self.send(command, payload, fds, 0);
        self.reply()
    }

    fn access(region: u32, offset: u64, count: usize) -> Vec<u8> {
        let mut p = offset.to_ne_bytes().to_vec();
        p.extend(region.to_ne_bytes());
        p.extend((count as u32).to_ne_bytes());
        p
    }

    pub fn read(&mut self, region: u32, offset: u64, count: usize) -> Vec<u8> {
        let reply = self.call(CMD_READ, &Self::access(region, offset, count), &[]);
        assert_eq!(
            reply.error, 0,
            "read of {count} at {offset:#x} of region {region}"
        );
        reply.payload[16..].to_vec()
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let mut p = Self::access(region, offset, data.len());
        p.extend_from_slice(data);
        let reply = self.call(CMD_WRITE, &p, &[]);
        assert_eq!(reply.error, 0, "write at {offset:#x} of region {region}");
    }

    /// A write without reply, as QEMU posts them.
    pub fn post(&mut self, region: u32, offset: u64, data: &[u8]) {
        let mut p = Self::access(region, offset, data.len());
        p.extend_from_slice(data);
        self.send(CMD_WRITE, &p, &[], NO_REPLY);
    }

    pub fn map(&mut self, address: u64, size: u64, offset: u64, fd: Option<&OwnedFd>) -> u32 {
        let mut p = 32u32.to_ne_bytes().to_vec();
        p.extend(3u32.to_ne_bytes());
        p.extend(offset.to_ne_bytes());
        p.extend(address.to_ne_bytes());
        p.extend(size.to_ne_bytes());
        self.call(CMD_DMA_MAP, &p, &fd.into_iter().collect::<Vec<_>>())
            .error
    }

    pub fn unmap(&mut self, address: u64, size: u64, flags: u32) -> u32 {
        let mut p = 24u32.to_ne_bytes().to_vec();
        p.extend(flags.to_ne_bytes());
        p.extend(address.to_ne_bytes());
        p.extend(size.to_ne_bytes());
        self.call(CMD_DMA_UNMAP, &p, &[]).error
    }

    /// SET_IRQS of MSI-X with event descriptors.
    pub fn set_msix(&mut self, start: u32, count: u32, fds: &[&OwnedFd]) -> u32 {
        let mut p = Vec::new();
        for word in [20, 4 | 32, 2, start, count] {
            p.extend(u32::to_ne_bytes(word));
        }
        self.call(CMD_SET_IRQS, &p, fds).error
    }

    pub fn read32(&mut self, offset: u64) -> u32 {
        let b = self.read(REGION_BAR0, offset, 4);
        u32::from_be_bytes([b[0], b[1], b[2], b[3]])
    }

    pub fn write32(&mut self, offset: u64, value: u32) {
        self.write(REGION_BAR0, offset, &value.to_be_bytes());
    }

    /// Memory space and bus master on, or bus master off.
    pub fn master(&mut self, on: bool) {
        self.write(REGION_CONFIG, 4, &[if on { 6 } else { 2 }, 0]);
    }
}

/// Guest memory from address 0 on.
pub struct Ram {
    pub fd: OwnedFd,
    file: File,
    next: u64,
}

impl Ram {
    pub const SIZE: u64 = 64 << 20;

    pub fn new() -> Self {
        let name = CString::new("guest").expect("no NUL");
        let fd = memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC).expect("memfd");
        let file = File::from(fd.try_clone().expect("dup"));
        file.set_len(Self::SIZE).expect("size");
        Self {
            fd,
            file,
            next: 0x10_0000,
        }
    }

    /// `size` bytes of zeros, 4 KiB aligned.
    pub fn alloc(&mut self, size: u64) -> u64 {
        let at = self.next;
        self.next += size.next_multiple_of(4096);
        assert!(self.next <= Self::SIZE, "out of guest memory");
        at
    }

    pub fn write(&self, at: u64, data: &[u8]) {
        self.file.write_all_at(data, at).expect("guest memory");
    }

    pub fn read(&self, at: u64, size: usize) -> Vec<u8> {
        let mut data = vec![0; size];
        self.file
            .read_exact_at(&mut data, at)
            .expect("guest memory");
        data
    }

    pub fn byte(&self, at: u64) -> u8 {
        self.read(at, 1)[0]
    }
}

/// An input being filled.
#[derive(Clone)]
pub struct Input(pub Vec<u8>);

impl Input {
    /// `name` as in `mlx5_ifc.h` (`ENABLE_HCA`), `structure` without `_in`.
    pub fn new(name: &str, structure: &str, op_mod: u16) -> Self {
        let mut buf = vec![0; ifc::size_of(&format!("{structure}_in"))];
        ifc::set(
            &mut buf,
            field!("create_eq_in", "opcode"),
            ifc::opcode(name).expect("opcode").into(),
        );
        ifc::set(&mut buf, field!("create_eq_in", "op_mod"), op_mod.into());
        Self(buf)
    }

    pub fn with(mut self, bits: Bits, value: u64) -> Self {
        ifc::set(&mut self.0, bits, value);
        self
    }

    pub fn tail(mut self, data: &[u8]) -> Self {
        self.0.extend_from_slice(data);
        self
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub delivery: u8,
    pub token: u8,
    pub data: Vec<u8>,
}

impl Output {
    pub fn status(&self) -> u8 {
        self.data[0]
    }

    pub fn syndrome(&self) -> u32 {
        u32::from_be_bytes([self.data[4], self.data[5], self.data[6], self.data[7]])
    }

    pub fn get(&self, bits: Bits) -> u64 {
        ifc::get(&self.data, bits)
    }
}

/// An EQ of the driver.
pub struct DriverEq {
    pub eqn: u8,
    pub buffer: u64,
    pub size: u32,
    pub ci: u32,
    pub uar: u32,
}

/// A driver by hand.
pub struct Driver {
    pub vfu: Vfu,
    pub ram: Ram,
    pub queue: u64,
    pub irqs: Vec<EventFd>,
    token: u8,
    /// Mailboxes of the command under way, by slot.
    out: Vec<Option<(u64, u32)>>,
}

pub const PAGE_SLOT: usize = 31;

/// Names of the rules broken since the last look.
pub fn broken(model: &Model) -> Vec<String> {
    let list = model
        .control()
        .violations(true)
        .expect("violations")
        .violations;
    list.into_iter().map(|v| v.rule).collect()
}

/// Exactly these rules were broken since the last look.
pub fn assert_broken(model: &Model, rules: &[Rule]) {
    let names: Vec<&str> = rules.iter().map(|r| r.name()).collect();
    assert_eq!(broken(model), names);
}

/// A field of the mkey context in CREATE_MKEY.
pub fn mkc(name: &str) -> Bits {
    let path = format!("memory_key_mkey_entry.{name}");
    ifc::try_locate("create_mkey_in", &path).expect("a field of mkc")
}

/// Input of ACCESS_REG.
pub fn register(id: u64, op_mod: u16, data: &[u8]) -> Input {
    Input::new("ACCESS_REG", "access_register", op_mod)
        .with(field!("access_register_in", "register_id"), id)
        .tail(data)
}

impl Driver {
    /// Connected, memory mapped, vectors assigned, bus master on, queue set.
    pub fn attach(model: &Model) -> Self {
        let mut d = Self::connect(model);
        d.vfu.master(true);
        d.set_queue();
        d
    }

    /// Connected, memory mapped, vectors assigned.
    pub fn connect(model: &Model) -> Self {
        let mut vfu = Vfu::connect(model);
        let ram = Ram::new();
        assert_eq!(vfu.map(0, Ram::SIZE, 0, Some(&ram.fd)), 0);
        assert_eq!(vfu.set_msix(0, 4, &[]), 0);
        let irqs: Vec<EventFd> = (0..4)
            .map(|_| EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).expect("eventfd"))
            .collect();
        let fds: Vec<OwnedFd> = irqs
            .iter()
            .map(|e| e.as_fd().try_clone_to_owned().expect("dup"))
            .collect();
        assert_eq!(vfu.set_msix(0, 4, &fds.iter().collect::<Vec<_>>()), 0);
        Self {
            vfu,
            ram,
            queue: 0,
            irqs,
            token: 0,
            out: vec![None; 32],
        }
    }

    pub fn set_queue(&mut self) {
        if self.queue == 0 {
            self.queue = self.ram.alloc(4096);
        }
        self.vfu.write32(0x10, (self.queue >> 32) as u32);
        self.vfu.write32(0x14, self.queue as u32);
    }

    fn chain(&mut self, len: usize, token: u8, data: &[u8]) -> u64 {
        let blocks = len.saturating_sub(16).div_ceil(512);
        let at: Vec<u64> = (0..blocks).map(|_| self.ram.alloc(4096)).collect();
        for (i, block) in at.iter().enumerate() {
            let mut raw = [0u8; 0x240];
            let part = data.get(16 + i * 512..).unwrap_or_default();
            let n = part.len().min(512);
            raw[..n].copy_from_slice(&part[..n]);
            raw[0x230..0x238].copy_from_slice(&at.get(i + 1).unwrap_or(&0).to_be_bytes());
            raw[0x238..0x23c].copy_from_slice(&(i as u32).to_be_bytes());
            raw[0x23d] = token;
            self.ram.write(*block, &raw);
        }
        at.first().copied().unwrap_or(0)
    }

    /// Writes the descriptor of `slot` without ringing; `change` may spoil it before it is signed.
    pub fn prepare(
        &mut self,
        slot: usize,
        input: &[u8],
        out_len: usize,
        change: impl Fn(&mut [u8; 64]),
    ) -> u8 {
        self.token = self.token % 255 + 1;
        let token = self.token;
        let first_in = self.chain(input.len(), token, input);
        let first_out = self.chain(out_len, token, &[]);
        let mut d = [0u8; 64];
        d[0] = 7;
        d[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        d[8..16].copy_from_slice(&first_in.to_be_bytes());
        let n = input.len().min(16);
        d[16..16 + n].copy_from_slice(&input[..n]);
        d[0x30..0x38].copy_from_slice(&first_out.to_be_bytes());
        d[0x38..0x3c].copy_from_slice(&(out_len as u32).to_be_bytes());
        d[0x3c] = token;
        d[0x3f] = 1;
        change(&mut d);
        if d[0x3d] == 0 {
            d[0x3d] = !d.iter().fold(0, |a, b| a ^ b);
        }
        self.ram.write(self.queue + slot as u64 * 64, &d);
        self.out[slot] = Some((first_out, out_len as u32));
        token
    }

    pub fn ring(&mut self, slot: usize) {
        self.vfu.write32(0x18, 1 << slot);
    }

    /// Whether the command in `slot` has completed.
    pub fn done(&self, slot: usize) -> bool {
        self.ram.byte(self.queue + slot as u64 * 64 + 63) & 1 == 0
    }

    /// Reads the output of the completed command in `slot`.
    pub fn output(&mut self, slot: usize) -> Output {
        let d = self.ram.read(self.queue + slot as u64 * 64, 64);
        let (mut block, len) = self.out[slot].expect("a command was submitted");
        let mut data = d[0x20..0x30].to_vec();
        while data.len() < len as usize {
            let raw = self.ram.read(block, 0x240);
            data.extend_from_slice(&raw[..512]);
            block = u64::from_be_bytes(raw[0x230..0x238].try_into().expect("8 bytes"));
        }
        data.truncate(len as usize);
        Output {
            delivery: d[63] >> 1,
            token: d[0x3c],
            data,
        }
    }

    /// Waits for `slot` and reads its output.
    pub fn wait(&mut self, slot: usize) -> Output {
        eventually("completion", || self.done(slot));
        self.output(slot)
    }

    /// Runs a command and returns what came back.
    pub fn exec(&mut self, input: &Input, out_len: usize) -> Output {
        let pages = ifc::get(&input.0, field!("create_eq_in", "opcode"))
            == u64::from(ifc::opcode("MANAGE_PAGES").expect("opcode"));
        let slot = if pages { PAGE_SLOT } else { 0 };
        self.prepare(slot, &input.0, out_len, |_| {});
        self.ring(slot);
        self.wait(slot)
    }

    /// Runs a command that must succeed.
    pub fn ok(&mut self, input: &Input, structure: &str) -> Output {
        let out = self.exec(input, ifc::size_of(&format!("{structure}_out")));
        assert_eq!(
            (out.delivery, out.status()),
            (0, 0),
            "{structure}: {:#x}",
            out.syndrome()
        );
        out
    }

    pub fn simple(&mut self, name: &str, structure: &str) -> Output {
        self.ok(&Input::new(name, structure, 0), structure)
    }

    pub fn query_pages(&mut self, op_mod: u16) -> i32 {
        let input = Input::new("QUERY_PAGES", "query_pages", op_mod);
        let out = self.ok(&input, "query_pages");
        out.get(field!("query_pages_out", "num_pages")) as u32 as i32
    }

    pub fn give_input(pages: &[u64]) -> Input {
        let list: Vec<u8> = pages.iter().flat_map(|p| p.to_be_bytes()).collect();
        Input::new("MANAGE_PAGES", "manage_pages", 1)
            .with(
                field!("manage_pages_in", "input_num_entries"),
                pages.len() as u64,
            )
            .tail(&list)
    }

    /// Gives `count` fresh pages.
    pub fn give(&mut self, count: u32) -> Vec<u64> {
        let pages: Vec<u64> = (0..count).map(|_| self.ram.alloc(4096)).collect();
        self.ok(&Self::give_input(&pages), "manage_pages");
        pages
    }

    /// Takes up to `count` pages back.
    pub fn take(&mut self, count: u32) -> Vec<u64> {
        let input = Input::new("MANAGE_PAGES", "manage_pages", 2)
            .with(field!("manage_pages_in", "input_num_entries"), count.into());
        let out = self.exec(&input, 16 + 8 * count as usize);
        assert_eq!((out.delivery, out.status()), (0, 0));
        let n = out.get(field!("manage_pages_out", "output_num_entries")) as usize;
        out.data[16..16 + 8 * n]
            .chunks_exact(8)
            .map(|pa| u64::from_be_bytes(pa.try_into().expect("8 bytes")))
            .collect()
    }

    /// ENABLE_HCA and SET_ISSI.
    pub fn enable(&mut self) {
        self.simple("ENABLE_HCA", "enable_hca");
        self.simple("QUERY_ISSI", "query_issi");
        let input = Input::new("SET_ISSI", "set_issi", 0);
        self.ok(
            &input.with(field!("set_issi_in", "current_issi"), 1),
            "set_issi",
        );
    }

    /// Up to the boot pages.
    pub fn boot(&mut self) {
        self.enable();
        let n = self.query_pages(1);
        self.give(n as u32);
    }

    /// Up to INIT_HCA.
    pub fn init(&mut self) {
        self.boot();
        let n = self.query_pages(2);
        self.give(n as u32);
        self.simple("INIT_HCA", "init_hca");
    }

    pub fn alloc_pd(&mut self) -> u32 {
        self.simple("ALLOC_PD", "alloc_pd")
            .get(field!("alloc_pd_out", "pd")) as u32
    }

    pub fn dealloc_pd_input(pd: u32) -> Input {
        Input::new("DEALLOC_PD", "dealloc_pd", 0).with(field!("dealloc_pd_in", "pd"), pd.into())
    }

    /// Input of CREATE_MKEY for pages of 4096 bytes: local read and write, any QP.
    pub fn mkey_input(pd: u32, start: u64, len: u64, pages: &[u64]) -> Input {
        let octowords = pages.len().div_ceil(2) as u64;
        let mut list: Vec<u8> = pages.iter().flat_map(|p| p.to_be_bytes()).collect();
        list.resize(octowords as usize * 16, 0);
        Input::new("CREATE_MKEY", "create_mkey", 0)
            .with(
                field!("create_mkey_in", "translations_octword_actual_size"),
                octowords,
            )
            .with(mkc("translations_octword_size"), octowords)
            .with(mkc("access_mode_1_0"), 1)
            .with(mkc("lr"), 1)
            .with(mkc("lw"), 1)
            .with(mkc("qpn"), 0xff_ffff)
            .with(mkc("mkey_7_0"), 0x5a)
            .with(mkc("pd"), pd.into())
            .with(mkc("start_addr"), start)
            .with(mkc("len"), len)
            .with(mkc("log_page_size"), 12)
            .tail(&list)
    }

    /// Creates a key by [`Driver::mkey_input`], or a change of it.
    pub fn create_mkey(&mut self, input: &Input) -> u32 {
        let out = self.ok(input, "create_mkey");
        let index = out.get(field!("create_mkey_out", "mkey_index")) as u32;
        index << 8 | ifc::get(&input.0, mkc("mkey_7_0")) as u32
    }

    pub fn destroy_mkey_input(key: u32) -> Input {
        Input::new("DESTROY_MKEY", "destroy_mkey", 0)
            .with(field!("destroy_mkey_in", "mkey_index"), u64::from(key >> 8))
    }

    pub fn alloc_uar(&mut self) -> u32 {
        self.simple("ALLOC_UAR", "alloc_uar")
            .get(field!("alloc_uar_out", "uar")) as u32
    }

    /// Input of CREATE_EQ, with an initialised buffer.
    pub fn eq_input(&mut self, log_size: u32, uar: u32, vector: u16, mask: u64) -> (Input, u64) {
        let bytes = 64u64 << log_size;
        let buffer = self.ram.alloc(bytes);
        self.ram.write(buffer, &vec![0xff; bytes as usize]);
        let pages: Vec<u8> = (buffer..buffer + bytes)
            .step_by(4096)
            .flat_map(u64::to_be_bytes)
            .collect();
        let input = Input::new("CREATE_EQ", "create_eq", 0)
            .with(
                field!("create_eq_in", "eq_context_entry.log_eq_size"),
                log_size.into(),
            )
            .with(
                field!("create_eq_in", "eq_context_entry.uar_page"),
                uar.into(),
            )
            .with(
                field!("create_eq_in", "eq_context_entry.intr"),
                vector.into(),
            )
            .with(field!("create_eq_in", "event_bitmask").element(0), mask)
            .tail(&pages);
        (input, buffer)
    }

    pub fn create_eq(&mut self, log_size: u32, uar: u32, vector: u16, mask: u64) -> DriverEq {
        let (input, buffer) = self.eq_input(log_size, uar, vector, mask);
        let out = self.ok(&input, "create_eq");
        let eqn = out.get(field!("create_eq_out", "eq_number")) as u8;
        let eq = DriverEq {
            eqn,
            buffer,
            size: 1 << log_size,
            ci: 0,
            uar,
        };
        self.doorbell(&eq, true);
        eq
    }

    pub fn doorbell(&mut self, eq: &DriverEq, arm: bool) {
        let at = u64::from(eq.uar) * bar::UAR_SIZE + if arm { bar::EQ_ARM } else { bar::EQ_UPDATE };
        self.vfu
            .write32(at, u32::from(eq.eqn) << 24 | eq.ci & 0xff_ffff);
    }

    /// The next event of `eq`, if there is one.
    pub fn poll_eq(&mut self, eq: &mut DriverEq) -> Option<Vec<u8>> {
        let at = eq.buffer + u64::from(eq.ci & (eq.size - 1)) * 64;
        let owner = self.ram.byte(at + 63) & 1;
        if u32::from(owner) != (eq.ci / eq.size) & 1 {
            return None;
        }
        eq.ci += 1;
        Some(self.ram.read(at, 64))
    }

    /// Interrupts of `vector` since the last look.
    pub fn interrupts(&self, vector: usize) -> u64 {
        self.irqs[vector].read().unwrap_or(0)
    }

    pub fn destroy_eq(&mut self, eqn: u8) {
        let input = Input::new("DESTROY_EQ", "destroy_eq", 0);
        self.ok(
            &input.with(field!("destroy_eq_in", "eq_number"), eqn.into()),
            "destroy_eq",
        );
    }

    pub fn dealloc_uar(&mut self, uar: u32) {
        let input = Input::new("DEALLOC_UAR", "dealloc_uar", 0);
        self.ok(
            &input.with(field!("dealloc_uar_in", "uar"), uar.into()),
            "dealloc_uar",
        );
    }

    /// From INIT_HCA back to the start.
    pub fn down(&mut self) -> usize {
        self.simple("TEARDOWN_HCA", "teardown_hca");
        let mut count = 0;
        loop {
            let n = self.take(700).len();
            if n == 0 {
                break;
            }
            count += n;
        }
        self.simple("DISABLE_HCA", "disable_hca");
        count
    }
}
