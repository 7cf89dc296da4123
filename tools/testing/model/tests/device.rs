// SPDX-License-Identifier: GPL-2.0

//! The device as a driver sees it: bring-up, teardown, events, and each rule that it checks.

mod common;

use std::time::Duration;

use common::*;
use mlx5_model::checks::Rule;
use mlx5_model::cmdif::Mode;
use mlx5_model::device::State;
use mlx5_model::ifc;

fn status(driver: &mut Driver, input: &Input) -> u8 {
    driver.exec(input, 8192).status()
}

#[test]
fn all_the_way_up_and_down() {
    let model = Model::start();
    let mut control = model.control();
    let mut d = Driver::attach(&model);
    assert_eq!(d.vfu.read32(0x4) >> 16, 5, "interface revision");
    assert_eq!(d.vfu.read32(0x14) & 0xff, 0x56, "32 slots of 64 bytes");
    d.init();
    let s = control.status().expect("status");
    assert_eq!(
        (s.state, s.issi, s.bus_master),
        (State::Initialized, Some(1), true)
    );
    assert_eq!(s.pages.given as i32, s.pages.boot + s.pages.init);
    assert_eq!(s.pages.functions[0].requested, 0);

    let uar = d.alloc_uar();
    let mut cmd = d.create_eq(8, uar, 0, 1 << 0x0a);
    let pages = d.create_eq(8, uar, 1, 1 << 0x0b);
    // The completion of the second CREATE_EQ is the first event of the first EQ.
    assert!(d.poll_eq(&mut cmd).is_some());
    assert_eq!(d.interrupts(0), 1);
    d.doorbell(&cmd, true);
    let s = control.status().expect("status");
    assert_eq!(s.eqs.len(), 2);
    assert_eq!(
        (s.eqs[0].vector, s.eqs[0].size, s.eqs[0].armed),
        (0, 256, true)
    );
    assert_eq!(s.eqs[1].events, [0x0b]);

    // From here on a command ends with an event.
    let from = control.commands(0).expect("commands").total;
    let pd = d
        .simple("ALLOC_PD", "alloc_pd")
        .get(field!("alloc_pd_out", "pd"));
    let eqe = d
        .poll_eq(&mut cmd)
        .expect("written before the doorbell's reply");
    assert_eq!((eqe[1], &eqe[0x20..0x24]), (0x0a, &[0, 0, 0, 1][..]));
    assert_eq!(d.interrupts(0), 1);
    let mut log = control.commands(from).expect("commands").commands;
    let record = log.pop().expect("one command");
    assert!(log.is_empty());
    assert_eq!(
        (record.name.as_str(), record.mode, record.status),
        ("ALLOC_PD", Mode::Event, Some(0))
    );
    d.doorbell(&cmd, true);
    assert_eq!(control.status().expect("status").eqs[0].ci, 2);

    let input = Input::new("DEALLOC_PD", "dealloc_pd", 0).with(field!("dealloc_pd_in", "pd"), pd);
    d.ok(&input, "dealloc_pd");
    d.destroy_eq(pages.eqn);
    d.destroy_eq(cmd.eqn);
    d.dealloc_uar(uar);
    let given = control.status().expect("status").pages.given;
    assert_eq!(d.down(), given);
    let s = control.status().expect("status");
    assert_eq!((s.state, s.pages.given, s.uars.len()), (State::Reset, 0, 0));
    assert_broken(&model, &[]);
    // And once more, on the same device.
    d.init();
    d.down();
    assert_broken(&model, &[]);
}

#[test]
fn capabilities() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    d.boot();
    let cap = |d: &mut Driver, op_mod| {
        d.exec(&Input::new("QUERY_HCA_CAP", "query_hca_cap", op_mod), 4112)
    };
    let general = cap(&mut d, 1);
    assert_eq!(general.status(), 0);
    let set = |page: &[u8], op_mod| {
        let mut input = Input::new("SET_HCA_CAP", "set_hca_cap", op_mod);
        input.0[16..].copy_from_slice(page);
        input
    };
    let page = general.data[16..].to_vec();
    d.ok(&set(&page, 0), "set_hca_cap");
    let mut changed = page.clone();
    ifc::set(&mut changed, field!("cmd_hca_cap", "release_all_pages"), 1);
    d.ok(&set(&changed, 0), "set_hca_cap");
    assert_eq!(cap(&mut d, 1).data[16..], changed[..]);
    assert_broken(&model, &[]);

    let mut wrong = changed.clone();
    ifc::set(&mut wrong, field!("cmd_hca_cap", "log_max_qp"), 5);
    assert_eq!(status(&mut d, &set(&wrong, 0)), 3);
    let mut wrong = changed.clone();
    ifc::set(&mut wrong, field!("cmd_hca_cap", "num_ports"), 2);
    assert_eq!(status(&mut d, &set(&wrong, 0)), 3);
    assert_eq!(status(&mut d, &set(&changed, 4)), 3);
    assert_eq!(status(&mut d, &set(&changed, 1)), 3);
    assert_broken(
        &model,
        &[
            Rule::CapAboveMax,
            Rule::CapReadOnly,
            Rule::UnknownObject,
            Rule::Parameter,
        ],
    );
    // Asking for a page that is not there is no mistake.
    assert_eq!(cap(&mut d, 0x04 << 1).status(), 3);
    model
        .control()
        .set_cap("general", "roce", 1, 1)
        .expect("cap");
    assert_eq!(cap(&mut d, 0x04 << 1).status(), 0);
    assert_broken(&model, &[]);
}

#[test]
fn registers() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    d.boot();
    let access = |register: u64, op_mod, data: &[u8]| {
        Input::new("ACCESS_REG", "access_register", op_mod)
            .with(field!("access_register_in", "register_id"), register)
            .tail(data)
    };
    let dtor = d.exec(&access(0xc00e, 1, &[0; 64]), 16 + 64);
    assert_eq!(dtor.status(), 0);
    let seconds =
        |at: usize| u32::from_be_bytes(dtor.data[16 + at..20 + at].try_into().expect("4"));
    assert_eq!(seconds(0x30), 1 << 29 | 5, "5 s to reclaim pages");
    let mut endianness = [0; 16];
    assert_eq!(d.exec(&access(0x7004, 0, &endianness), 32).status(), 0);
    let mcam = d.exec(&access(0x907f, 1, &[0; 72]), 16 + 72);
    assert_eq!(
        mcam.get(field!("mcam_reg", "mng_access_reg_cap_mask.access_regs.mrtc").shifted(16)),
        1
    );
    // Registers that are not there, and writes to those that cannot be written.
    assert_eq!(d.exec(&access(0x9001, 1, &[0; 128]), 16 + 128).status(), 3);
    assert_eq!(d.exec(&access(0xc00e, 0, &[0; 64]), 16 + 64).status(), 3);
    assert_broken(&model, &[]);
    assert_eq!(d.exec(&access(0xc00e, 1, &[0; 8]), 16 + 8).status(), 3);
    endianness[0] = 1;
    assert_eq!(d.exec(&access(0x7004, 0, &endianness), 32).status(), 3);
    assert_broken(&model, &[Rule::Length, Rule::Parameter]);
}

#[test]
fn order_of_commands() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    // Nothing before ENABLE_HCA.
    for (name, structure) in [
        ("QUERY_ISSI", "query_issi"),
        ("MANAGE_PAGES", "manage_pages"),
        ("QUERY_HCA_CAP", "query_hca_cap"),
        ("INIT_HCA", "init_hca"),
        ("CREATE_EQ", "create_eq"),
        ("TEARDOWN_HCA", "teardown_hca"),
        ("DISABLE_HCA", "disable_hca"),
    ] {
        assert_eq!(status(&mut d, &Input::new(name, structure, 0)), 4, "{name}");
        assert_broken(&model, &[Rule::Order]);
    }
    d.simple("ENABLE_HCA", "enable_hca");
    for (name, structure) in [
        ("ENABLE_HCA", "enable_hca"),
        ("QUERY_HCA_CAP", "query_hca_cap"),
        ("ACCESS_REG", "access_register"),
        ("INIT_HCA", "init_hca"),
        ("ALLOC_UAR", "alloc_uar"),
    ] {
        assert_eq!(status(&mut d, &Input::new(name, structure, 0)), 4, "{name}");
        assert_broken(&model, &[Rule::Order]);
    }
    let n = d.query_pages(1);
    d.give(n as u32);
    // Without initialization pages, and without SET_ISSI.
    assert_eq!(status(&mut d, &Input::new("INIT_HCA", "init_hca", 0)), 4);
    assert_broken(&model, &[Rule::Order, Rule::Order]);
    let n = d.query_pages(2);
    d.give(n as u32);
    let input =
        Input::new("SET_ISSI", "set_issi", 0).with(field!("set_issi_in", "current_issi"), 1);
    d.ok(&input, "set_issi");
    d.simple("INIT_HCA", "init_hca");
    assert_eq!(
        status(&mut d, &Input::new("DISABLE_HCA", "disable_hca", 0)),
        4
    );
    assert_eq!(
        status(&mut d, &Input::new("SET_HCA_CAP", "set_hca_cap", 0)),
        4
    );
    assert_broken(&model, &[Rule::Order, Rule::Order]);
    let uar = d.alloc_uar();
    let eq = d.create_eq(8, uar, 0, 0);
    let input = Input::new("DEALLOC_UAR", "dealloc_uar", 0);
    assert_eq!(
        status(
            &mut d,
            &input.with(field!("dealloc_uar_in", "uar"), uar.into())
        ),
        6
    );
    assert_broken(&model, &[Rule::Order]);
    let _ = eq;
    d.simple("TEARDOWN_HCA", "teardown_hca");
    d.simple("DISABLE_HCA", "disable_hca");
    assert_broken(&model, &[Rule::ObjectsLeft, Rule::PagesLeft]);
}

#[test]
fn lengths_and_reserved_fields() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    let enable = Input::new("ENABLE_HCA", "enable_hca", 0);
    let mut short = enable.clone();
    short.0.truncate(8);
    assert_eq!(status(&mut d, &short), 0x50);
    assert_eq!(d.exec(&enable, 8).status(), 0x51);
    assert_broken(&model, &[Rule::Length, Rule::Length]);
    let reserved = enable
        .clone()
        .with(field!("enable_hca_in", "reserved_at_44"), 1);
    assert_eq!(status(&mut d, &reserved), 0);
    let again = Input::new("DISABLE_HCA", "disable_hca", 0).tail(&[0, 0, 1]);
    assert_eq!(status(&mut d, &again), 0);
    assert_broken(&model, &[Rule::Reserved, Rule::Reserved]);
    assert_eq!(
        status(&mut d, &Input::new("ENABLE_HCA", "enable_hca", 7)),
        3
    );
    assert_broken(&model, &[Rule::Parameter]);
    // An opcode that the device does not have is no mistake, but is seen.
    assert_eq!(status(&mut d, &Input::new("CREATE_QP", "create_qp", 0)), 2);
    assert_broken(&model, &[]);
    let unknown = model.control().status().expect("status").unknown_opcodes;
    assert_eq!(unknown.get("CREATE_QP"), Some(&1));
}

#[test]
fn delivery() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    let input = Input::new("ENABLE_HCA", "enable_hca", 0);
    type Spoil = fn(&mut [u8; 64]);
    let cases: [(Spoil, u8, Rule); 7] = [
        (|d| d[0] = 1, 0x10, Rule::DescriptorType),
        (|d| d[0x3d] = 1, 0x1, Rule::Signature),
        (|d| d[0x3c] = 0, 0x2, Rule::Token),
        (|d| d[0x3c] ^= 0xff, 0x2, Rule::Token),
        (|d| d[0x39] = 0xff, 0x4, Rule::MailboxPointer),
        (|d| d[0x30] = 0xff, 0x4, Rule::DmaUnmapped),
        (|d| d[3] = 1, 0x9, Rule::DescriptorReserved),
    ];
    for (i, (spoil, delivery, rule)) in cases.into_iter().enumerate() {
        d.prepare(0, &input.0, 600, spoil);
        d.ring(0);
        eventually("completion", || d.done(0));
        let last = d.ram.byte(d.queue + 63);
        assert_eq!(last >> 1, delivery, "case {i}");
        assert_eq!(broken(&model)[0], rule.name(), "case {i}");
    }
    // Nothing of that was executed.
    assert_eq!(
        model.control().status().expect("status").state,
        State::Reset
    );
}

#[test]
fn doorbells() {
    let model = Model::start();
    let mut d = Driver::connect(&model);
    d.vfu.write32(0x18, 1);
    assert_broken(&model, &[Rule::NoQueue]);
    d.set_queue();
    d.prepare(0, &Input::new("ENABLE_HCA", "enable_hca", 0).0, 16, |_| {});
    d.ring(0);
    assert_broken(&model, &[Rule::DmaWithoutMaster]);
    assert!(!d.done(0));
    d.vfu.master(true);
    d.ring(0);
    assert_eq!(d.wait(0).status(), 0);
    d.ring(0);
    assert_broken(&model, &[Rule::NotOwned]);
    // The page slot is for pages, and only they may use it.
    d.prepare(
        31,
        &Input::new("QUERY_ISSI", "query_issi", 0).0,
        112,
        |_| {},
    );
    d.ring(31);
    assert_eq!(d.wait(31).status(), 0);
    d.prepare(
        3,
        &Input::new("MANAGE_PAGES", "manage_pages", 0).0,
        16,
        |_| {},
    );
    d.ring(3);
    assert_eq!(d.wait(3).status(), 0);
    assert_broken(&model, &[Rule::SlotClass, Rule::SlotClass]);
    // Two slots by one doorbell.
    for slot in [4, 5] {
        d.prepare(
            slot,
            &Input::new("QUERY_ISSI", "query_issi", 0).0,
            112,
            |_| {},
        );
    }
    d.vfu.write32(0x18, 3 << 4);
    assert_eq!((d.wait(4).status(), d.wait(5).status()), (0, 0));
    d.vfu.write(REGION_BAR0, 0x18, &[0, 1]);
    d.vfu.write32(0x0, 1);
    d.vfu.write32(0x1_0040, 1);
    assert_broken(
        &model,
        &[Rule::MmioAccess, Rule::MmioReadOnly, Rule::UarNotAllocated],
    );
}

#[test]
fn a_client_that_leaves_takes_its_state_with_it() {
    let model = Model::start();
    for _ in 0..3 {
        let mut d = Driver::attach(&model);
        d.init();
        drop(d);
        eventually("the device forgets", || {
            let s = model.control().status().expect("status");
            s.state == State::Reset && s.pages.given == 0 && !s.bus_master && s.dma_maps == 0
        });
    }
    assert_broken(&model, &[]);
}

#[test]
fn resets() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    let state = || model.control().status().expect("status").state;
    d.init();
    // Function level reset: DevCtl bit 15, as a 16-bit write.
    d.vfu.write(REGION_CONFIG, 0x68, &[0x10, 0xa9]);
    assert_eq!(state(), State::Reset);
    assert_eq!(d.vfu.read32(0x14) & !0xff, 0);
    d.vfu.master(true);
    d.set_queue();
    d.init();
    assert_eq!(d.vfu.call(CMD_RESET, &[], &[]).error, 0);
    assert_eq!(state(), State::Reset);
    d.vfu.master(true);
    d.set_queue();
    d.init();
    // A new driver without any reset, as after kexec.
    d.set_queue();
    assert_eq!(state(), State::Reset);
    d.init();
    // Fast teardown.
    let input = Input::new("TEARDOWN_HCA", "teardown_hca", 0);
    d.ok(
        &input.clone().with(field!("teardown_hca_in", "profile"), 2),
        "teardown_hca",
    );
    let queue = d.queue as u32;
    d.vfu.write32(0x14, queue | 1 << 8);
    assert_eq!(d.vfu.read32(0x14) >> 8 & 7, 1);
    assert_eq!(state(), State::Reset);
    d.set_queue();
    assert_eq!(d.vfu.read32(0x14) >> 8 & 7, 0);
    d.init();
    d.ok(
        &input.with(field!("teardown_hca_in", "profile"), 1),
        "teardown_hca",
    );
    assert_eq!(state(), State::TornDown);
    assert_broken(&model, &[]);
}

#[test]
fn pages_are_watched() {
    let model = Model::start();
    let mut control = model.control();
    let mut d = Driver::attach(&model);
    control.run("pages boot=8 init=0").expect("pages");
    d.enable();
    assert_eq!(d.query_pages(1), 8);
    let pages: Vec<u64> = (0..8).map(|_| d.ram.alloc(4096)).collect();
    for (bad, rule) in [
        (vec![pages[0], 0], Rule::PageAddress),
        (vec![pages[0] + 512], Rule::PageAddress),
        (vec![pages[0], pages[0]], Rule::PageTwice),
        (vec![1 << 40], Rule::DmaUnmapped),
        (vec![d.queue], Rule::PageReused),
    ] {
        assert_eq!(status(&mut d, &Driver::give_input(&bad)), 3);
        assert_broken(&model, &[rule]);
        assert_eq!(
            control.status().expect("status").pages.given,
            0,
            "all or nothing"
        );
    }
    d.ok(&Driver::give_input(&pages), "manage_pages");
    assert_eq!(status(&mut d, &Driver::give_input(&pages[..1])), 3);
    assert_broken(&model, &[Rule::PageTwice]);
    let extra = d.ram.alloc(4096);
    d.ok(&Driver::give_input(&[extra]), "manage_pages");
    assert_broken(&model, &[Rule::PageNotRequested]);
    let short =
        Driver::give_input(&[extra]).with(field!("manage_pages_in", "input_num_entries"), 2);
    assert_eq!(status(&mut d, &short), 0x50);
    let take = Input::new("MANAGE_PAGES", "manage_pages", 2)
        .with(field!("manage_pages_in", "input_num_entries"), 100);
    assert_eq!(d.exec(&take, 16).status(), 0x51);
    let other = Input::new("MANAGE_PAGES", "manage_pages", 2)
        .with(field!("manage_pages_in", "function_id"), 3);
    assert_eq!(status(&mut d, &other), 3);
    assert_broken(&model, &[Rule::Length, Rule::Length, Rule::UnknownObject]);

    control.run("pages check").expect("pages");
    assert_broken(&model, &[]);
    d.ram.write(pages[3] + 100, &[0, 0]);
    control.run("pages check").expect("pages");
    assert_broken(&model, &[Rule::PageTouched]);
    let mut all = d.take(20);
    assert_broken(&model, &[Rule::PageTouched]);
    all.sort_unstable();
    let mut want: Vec<u64> = pages.iter().copied().chain([extra]).collect();
    want.sort_unstable();
    assert_eq!(all, want);
}

#[test]
fn page_requests() {
    let model = Model::start();
    let mut control = model.control();
    let mut d = Driver::attach(&model);
    control.run("pages boot=4 init=4").expect("pages");
    assert!(
        control.run("page_request npages=1").is_err(),
        "no EQ for it"
    );
    d.init();
    let uar = d.alloc_uar();
    let mut eq = d.create_eq(8, uar, 1, 1 << 0x0b);
    let next = |d: &mut Driver, eq: &mut DriverEq| {
        let mut eqe = None;
        eventually("event", || {
            eqe = d.poll_eq(eq);
            eqe.is_some()
        });
        d.doorbell(eq, true);
        eqe.expect("an event")
    };
    control.run("page_request npages=5").expect("request");
    let eqe = next(&mut d, &mut eq);
    assert_eq!(
        (eqe[1], &eqe[0x20..0x28]),
        (0x0b, &[0, 0, 0, 0, 0, 0, 0, 5][..])
    );
    d.give(5);
    // A running device gives back only what it has offered.
    assert_eq!(d.take(10).len(), 0);
    control.run("page_request npages=-3").expect("request");
    let eqe = next(&mut d, &mut eq);
    assert_eq!(eqe[0x24..0x28], [0xff, 0xff, 0xff, 0xfd]);
    assert_eq!(d.take(10).len(), 3);
    // A virtual function, and "cannot give".
    control
        .run("page_request function=2 ec=1 npages=1")
        .expect("request");
    let eqe = next(&mut d, &mut eq);
    assert_eq!(eqe[0x20..0x24], [0x80, 0, 0, 2]);
    let refuse = Input::new("MANAGE_PAGES", "manage_pages", 0)
        .with(field!("manage_pages_in", "function_id"), 2)
        .with(field!("manage_pages_in", "embedded_cpu_function"), 1);
    d.ok(&refuse, "manage_pages");
    let s = control.status().expect("status");
    let vf = s
        .pages
        .functions
        .iter()
        .find(|f| f.function == 2)
        .expect("function 2");
    assert_eq!((vf.ec, vf.refusals, vf.requested), (true, 1, 0));
    control.run("page_request release_all=1").expect("request");
    let eqe = next(&mut d, &mut eq);
    assert_eq!(eqe[0x20..0x22], [0x40, 0]);
    assert_eq!(control.status().expect("status").pages.given, 0);
    assert_broken(&model, &[]);
}

#[test]
fn queries_of_pages_may_be_zero_or_negative() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    model
        .control()
        .run("pages boot=0 init=-5 regular=7")
        .expect("pages");
    d.enable();
    assert_eq!(
        (d.query_pages(1), d.query_pages(2), d.query_pages(3)),
        (0, -5, 7)
    );
    d.simple("INIT_HCA", "init_hca");
    // What the next driver shall be asked for does not matter to this one.
    model.control().run("pages boot=9").expect("pages");
    d.alloc_uar();
    assert_broken(&model, &[]);
}

#[test]
fn event_queues_are_checked() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    model.control().run("pages boot=4 init=0").expect("pages");
    d.init();
    let uar = d.alloc_uar();
    let (good, buffer) = d.eq_input(8, uar, 0, 1 << 9);
    let context = |name: &str| {
        ifc::try_locate("create_eq_in", &format!("eq_context_entry.{name}")).expect("field")
    };
    for (field, value, want, rule) in [
        ("uar_page", u64::from(uar) + 1, 5, Rule::UnknownObject),
        ("intr", 64, 3, Rule::Parameter),
        ("log_eq_size", 31, 3, Rule::Parameter),
        ("consumer_counter", 1, 3, Rule::Parameter),
        ("log_eq_size", 9, 0x50, Rule::Length),
        ("reserved_at_20", 1, 0, Rule::Reserved),
    ] {
        assert_eq!(
            status(&mut d, &good.clone().with(context(field), value)),
            want,
            "{field}"
        );
        assert_broken(&model, &[rule]);
    }
    d.destroy_eq(1);
    let mut misplaced = good.clone();
    misplaced.0[272..280].copy_from_slice(&(buffer + 8).to_be_bytes());
    assert_eq!(status(&mut d, &misplaced), 3);
    misplaced.0[272..280].copy_from_slice(&(1u64 << 40).to_be_bytes());
    assert_eq!(status(&mut d, &misplaced), 3);
    assert_broken(&model, &[Rule::Parameter, Rule::DmaUnmapped]);
    d.ram.write(buffer + 64 * 7 + 63, &[0]);
    assert_eq!(status(&mut d, &good), 0);
    let (same, _) = d.eq_input(8, uar, 0, 1 << 9 | 1 << 1);
    assert_eq!(status(&mut d, &same), 0);
    assert_broken(&model, &[Rule::EqNotInitialised, Rule::EqMaskOverlap]);
    let missing =
        Input::new("DESTROY_EQ", "destroy_eq", 0).with(field!("destroy_eq_in", "eq_number"), 77);
    assert_eq!(status(&mut d, &missing), 5);
    assert_broken(&model, &[Rule::UnknownObject]);
    let query = Input::new("QUERY_EQ", "query_eq", 0).with(field!("query_eq_in", "eq_number"), 1);
    let out = d.exec(&query, 272 + 8 * 4);
    assert_eq!(
        out.get(field!("query_eq_out", "eq_context_entry.log_eq_size")),
        8
    );
    assert_eq!(out.data[272..280], buffer.to_be_bytes());
}

#[test]
fn events_interrupts_and_consumer_indexes() {
    let model = Model::start();
    let mut control = model.control();
    let mut d = Driver::attach(&model);
    control.run("pages boot=0 init=0").expect("pages");
    d.init();
    let uar = d.alloc_uar();
    let mut eq = d.create_eq(3, uar, 2, 1 << 9);
    control
        .run("event type=9 subtype=4 data=0000000000000000a0")
        .expect("event");
    eventually("interrupt", || d.interrupts(2) == 1);
    let eqe = d
        .poll_eq(&mut eq)
        .expect("the event is there before the interrupt");
    assert_eq!((eqe[1], eqe[3], eqe[0x28]), (9, 4, 0xa0));
    // Not armed: no interrupt. Arming with an event waiting: at once.
    control.run("event type=9").expect("event");
    assert_eq!(d.interrupts(2), 0);
    d.doorbell(&eq, false);
    assert_eq!(d.interrupts(2), 0);
    d.doorbell(&eq, true);
    eventually("interrupt", || d.interrupts(2) == 1);
    d.poll_eq(&mut eq).expect("event");
    d.doorbell(&eq, true);
    // More events than the queue holds wait for the consumer, over several laps.
    control.run("event type=9 count=100").expect("event");
    for n in 0..100 {
        eventually("event", || d.poll_eq(&mut eq).is_some());
        d.doorbell(&eq, n % 3 == 0);
    }
    assert!(d.poll_eq(&mut eq).is_none());
    assert_broken(&model, &[]);

    eq.ci += 1;
    d.doorbell(&eq, true);
    eq.ci -= 2;
    d.doorbell(&eq, true);
    eq.ci += 1;
    assert_broken(&model, &[Rule::EqConsumer, Rule::EqConsumer]);
    let other = d.alloc_uar();
    let stray = DriverEq { uar: other, ..eq };
    d.doorbell(&stray, true);
    d.doorbell(&DriverEq { eqn: 99, ..stray }, true);
    assert_broken(&model, &[Rule::EqDoorbell, Rule::EqDoorbell]);
    control.run("irq vector=3 count=2").expect("irq");
    eventually("interrupt", || d.interrupts(3) == 2);
    assert!(control.run("irq vector=64").is_err());
    assert!(control.run("event type=10").is_err(), "no EQ takes it");
}

#[test]
fn an_overrun_is_seen() {
    let model = Model::start();
    let mut d = Driver::attach(&model);
    model.control().run("pages boot=0 init=0").expect("pages");
    d.init();
    let uar = d.alloc_uar();
    // Two entries, never consumed: the third completion does not fit.
    let eq = d.create_eq(1, uar, 0, 1 << 0x0a);
    for _ in 0..3 {
        d.simple("QUERY_ISSI", "query_issi");
    }
    eventually("overrun", || {
        model.control().status().expect("status").eqs[0].overrun
    });
    assert_broken(&model, &[Rule::EqOverrun]);
    let query = Input::new("QUERY_EQ", "query_eq", 0)
        .with(field!("query_eq_in", "eq_number"), eq.eqn.into());
    let out = d.exec(&query, 272);
    assert_eq!(
        out.get(field!("query_eq_out", "eq_context_entry.status")),
        0xa
    );
}

#[test]
fn firmware_that_is_not_ready() {
    let model = Model::start();
    let mut control = model.control();
    control.run("initializing hold=1").expect("hold");
    let mut d = Driver::connect(&model);
    d.vfu.master(true);
    assert_eq!(d.vfu.read32(0x1fc) >> 31, 1);
    d.set_queue();
    d.ring(0);
    assert_broken(&model, &[Rule::NotReady, Rule::NotReady, Rule::NotReady]);
    control.run("initializing ms=50").expect("ms");
    assert_eq!(d.vfu.read32(0x1fc) >> 31, 1);
    eventually("ready", || d.vfu.read32(0x1fc) >> 31 == 0);
    control
        .run("initseg field=cmd_interface_rev value=4")
        .expect("initseg");
    assert_eq!(d.vfu.read32(4) >> 16, 4);
    // The health counter moves by itself.
    let before = d.vfu.read32(0x1010);
    std::thread::sleep(Duration::from_millis(50));
    let moved = d.vfu.read32(0x1010).wrapping_sub(before);
    assert!(moved >= 4, "{moved} in 50 ms");
}

#[test]
fn other_identities() {
    for (args, id, class) in [
        (&["--device", "bf3"][..], 0xa2dc, 0x0207),
        (
            &["--device", "0x1015", "--port-type", "eth"][..],
            0x1015,
            0x0200,
        ),
        (&["--vf"][..], 0x101e, 0x0207),
    ] {
        let model = Model::with(args);
        let mut v = Vfu::connect(&model);
        let c = v.read(REGION_CONFIG, 0, 16);
        assert_eq!(u16::from_le_bytes([c[2], c[3]]), id);
        assert_eq!(u16::from_le_bytes([c[10], c[11]]), class);
    }
}

#[test]
fn user_contexts() {
    let model = Model::start();
    let mut control = model.control();
    let mut d = Driver::attach(&model);
    d.init();
    let open = Input::new("CREATE_UCTX", "create_uctx", 0);
    let uid = |d: &mut Driver, input: &Input| {
        d.ok(input, "create_uctx")
            .get(field!("create_uctx_out", "uid"))
    };
    let cap = field!("create_uctx_in", "uctx.cap");
    let (a, b) = (
        uid(&mut d, &open),
        uid(&mut d, &open.clone().with(cap, 0b11)),
    );
    assert!(a != 0 && b != 0 && a != b && a != 0xffff && b != 0xffff);
    assert_eq!(status(&mut d, &open.clone().with(cap, 0b100)), 0x3);
    assert_broken(&model, &[Rule::Parameter]);

    // What a user makes is its own; the kernel may name it too.
    let alloc = Input::new("ALLOC_PD", "alloc_pd", 0);
    let place = field!("alloc_pd_in", "uid");
    let pd = |d: &mut Driver, uid| {
        d.ok(&alloc.clone().with(place, uid), "alloc_pd")
            .get(field!("alloc_pd_out", "pd"))
    };
    let dealloc = |uid, pd| {
        Input::new("DEALLOC_PD", "dealloc_pd", 0)
            .with(field!("dealloc_pd_in", "uid"), uid)
            .with(field!("dealloc_pd_in", "pd"), pd)
    };
    let (of_a, of_kernel) = (pd(&mut d, a), pd(&mut d, 0));
    for (uid, pd) in [(b, of_a), (a, of_kernel)] {
        assert_eq!(status(&mut d, &dealloc(uid, pd)), 0x5, "{uid} {pd}");
        assert_broken(&model, &[Rule::User]);
    }
    // Nobody.
    assert_eq!(status(&mut d, &alloc.clone().with(place, 77)), 0x3);
    assert_broken(&model, &[Rule::User]);
    // Where a uid means nothing it does no harm, if it is one.
    let query = Input::new("QUERY_ADAPTER", "query_adapter", 0);
    assert_eq!(status(&mut d, &query.clone().with(place, a)), 0);
    assert_broken(&model, &[]);
    assert_eq!(status(&mut d, &query.with(place, 77)), 0x3);
    assert_broken(&model, &[Rule::User]);

    let close = |uid| {
        Input::new("DESTROY_UCTX", "destroy_uctx", 0).with(field!("destroy_uctx_in", "uid"), uid)
    };
    assert_eq!(status(&mut d, &close(a)), 0x6, "a has a PD");
    assert_broken(&model, &[Rule::ObjectsLeft]);
    d.ok(&dealloc(a, of_a), "dealloc_pd");
    d.ok(&dealloc(0, of_kernel), "dealloc_pd");
    d.ok(&close(a), "destroy_uctx");
    assert_eq!(status(&mut d, &close(a)), 0x5, "twice");
    assert_broken(&model, &[Rule::User]);
    assert_eq!(control.status().expect("status").users, [b as u16]);
    assert_eq!(status(&mut d, &alloc.clone().with(place, a)), 0x3);
    assert_broken(&model, &[Rule::User]);

    // Two left, of which one is taken.
    control
        .run("cap page=general field=log_max_uctx cur=1 max=8")
        .expect("cap");
    assert_eq!(status(&mut d, &open), 0, "uid 1 is free again");
    assert_eq!(status(&mut d, &open), 0xf);
    control
        .run("cap page=general field=log_max_uctx cur=0 max=8")
        .expect("cap");
    assert_eq!(status(&mut d, &open), 0x2);
    assert_broken(&model, &[Rule::Opcode]);
    d.down();
    assert_broken(&model, &[Rule::ObjectsLeft]);
}

#[test]
fn virtual_functions() {
    let model = Model::with(&["--vfs", "2"]);
    let mut control = model.control();
    control.run("pages boot=3 init=2 vf=4").expect("pages");
    let mut d = Driver::attach(&model);
    let enable = |id| {
        Input::new("ENABLE_HCA", "enable_hca", 0).with(field!("enable_hca_in", "function_id"), id)
    };
    let disable = |id| {
        Input::new("DISABLE_HCA", "disable_hca", 0)
            .with(field!("disable_hca_in", "function_id"), id)
    };
    assert_eq!(status(&mut d, &enable(1)), 0x4, "the PF does not run");
    assert_broken(&model, &[Rule::Order]);
    d.init();
    let uar = d.alloc_uar();
    let mut pages = d.create_eq(8, uar, 0, 1 << 0x0b);
    let give = |id, pages: &[u64]| {
        Driver::give_input(pages).with(field!("manage_pages_in", "function_id"), id)
    };
    let request = |d: &mut Driver, pages: &mut DriverEq| {
        let eqe = d.poll_eq(pages)?;
        d.doorbell(pages, true);
        let id = u16::from_be_bytes([eqe[0x22], eqe[0x23]]);
        let n = i32::from_be_bytes([eqe[0x24], eqe[0x25], eqe[0x26], eqe[0x27]]);
        Some((eqe[0x20] & 0x40 != 0, id, n))
    };

    // It asks for pages, and gives them back.
    d.ok(&enable(1), "enable_hca");
    d.ok(&enable(2), "enable_hca");
    assert_eq!(control.status().expect("status").vfs, [1, 2]);
    assert_eq!(request(&mut d, &mut pages), Some((false, 1, 4)));
    assert_eq!(request(&mut d, &mut pages), Some((false, 2, 4)));
    let list: Vec<u64> = (0..4).map(|_| d.ram.alloc(4096)).collect();
    assert_eq!(d.exec(&give(1, &list), 16).status(), 0);
    d.ok(&disable(1), "disable_hca");
    assert_eq!(request(&mut d, &mut pages), Some((false, 1, -4)));
    let take = Input::new("MANAGE_PAGES", "manage_pages", 2)
        .with(field!("manage_pages_in", "function_id"), 1)
        .with(field!("manage_pages_in", "input_num_entries"), 4);
    let taken = d.exec(&take, 16 + 8 * 4);
    assert_eq!(
        taken.get(field!("manage_pages_out", "output_num_entries")),
        4
    );
    // Nothing was given to this one, and what comes now is too late.
    d.ok(&disable(2), "disable_hca");
    assert_eq!(request(&mut d, &mut pages), None);
    assert_eq!(d.exec(&give(2, &list), 16).status(), 0x9);
    assert_broken(&model, &[]);

    // All at once, if the driver can do that.
    control
        .run("cap page=general field=release_all_pages cur=1")
        .expect("cap");
    d.ok(&enable(1), "enable_hca");
    assert_eq!(request(&mut d, &mut pages), Some((false, 1, 4)));
    assert_eq!(d.exec(&give(1, &list), 16).status(), 0);
    d.ok(&disable(1), "disable_hca");
    assert_eq!(request(&mut d, &mut pages), Some((true, 1, -4)));
    let s = control.status().expect("status");
    assert_eq!((s.pages.given, s.vfs.len()), (5, 0));
    assert_broken(&model, &[]);

    // Twice, not at all, not there, left over.
    assert_eq!(status(&mut d, &disable(1)), 0x9);
    assert_broken(&model, &[Rule::Order]);
    d.ok(&enable(1), "enable_hca");
    assert_eq!(status(&mut d, &enable(1)), 0x9);
    assert_broken(&model, &[Rule::Order]);
    assert_eq!(status(&mut d, &enable(3)), 0x3);
    assert_broken(&model, &[Rule::UnknownObject]);
    d.destroy_eq(pages.eqn);
    d.dealloc_uar(uar);
    d.down();
    assert_broken(&model, &[Rule::ObjectsLeft]);
}
