// SPDX-License-Identifier: GPL-2.0

//! Misbehaviour on request, seen from the driver.

mod common;

use std::time::Duration;
use std::time::Instant;

use common::*;
use mlx5_model::control::client::Client as Control;
use mlx5_model::device::State;

struct Bench {
    model: Model,
    control: Control,
    d: Driver,
    cmd: DriverEq,
}

/// Initialized, with a command EQ.
fn bench() -> Bench {
    let model = Model::start();
    let mut control = model.control();
    control.run("pages boot=0 init=0").expect("pages");
    let mut d = Driver::attach(&model);
    d.init();
    let uar = d.alloc_uar();
    let cmd = d.create_eq(8, uar, 0, 1 << 0x0a);
    Bench {
        model,
        control,
        d,
        cmd,
    }
}

impl Bench {
    fn submit(&mut self, slot: usize) -> u8 {
        let token = self.d.prepare(
            slot,
            &Input::new("QUERY_ISSI", "query_issi", 0).0,
            112,
            |_| {},
        );
        self.d.ring(slot);
        token
    }

    /// Events so far, consumed.
    fn events(&mut self) -> Vec<u32> {
        let mut slots = Vec::new();
        while let Some(eqe) = self.d.poll_eq(&mut self.cmd) {
            slots.push(u32::from_be_bytes(
                eqe[0x20..0x24].try_into().expect("4 bytes"),
            ));
        }
        self.d.doorbell(&self.cmd, true);
        slots
    }

    fn no_violation(&mut self) {
        let v = self.control.violations(false).expect("violations");
        assert_eq!(v.violations, []);
    }
}

#[test]
fn status_by_name_and_number_after_some() {
    let mut b = bench();
    b.control
        .fault("op=QUERY_ISSI skip=1 count=2 act=status status=LIM_ERR syndrome=0x1234")
        .expect("fault");
    b.control
        .fault("op=0x10a act=status status=0x77")
        .expect("fault");
    let got: Vec<(u8, u32)> = (0..5)
        .map(|_| {
            b.submit(0);
            let out = b.d.wait(0);
            (out.status(), out.syndrome())
        })
        .collect();
    // The second fault struck first, while the first one let one pass.
    assert_eq!(got, [(0x77, 0), (8, 0x1234), (8, 0x1234), (0, 0), (0, 0)]);
    let list = b.control.faults().expect("faults").faults;
    assert_eq!(
        (list[0].op.as_str(), list[0].hits, list[0].left),
        ("QUERY_ISSI", 2, Some(0))
    );
    assert_eq!(list[1].hits, 1);
    b.no_violation();
}

#[test]
fn a_failed_command_is_not_executed() {
    let model = Model::start();
    let mut control = model.control();
    control
        .fault("op=ENABLE_HCA act=status status=INT_ERR")
        .expect("fault");
    let mut d = Driver::attach(&model);
    let enable = Input::new("ENABLE_HCA", "enable_hca", 0);
    assert_eq!(d.exec(&enable, 16).status(), 1);
    assert_eq!(control.status().expect("status").state, State::Reset);
    assert_eq!(d.exec(&enable, 16).status(), 0);
}

#[test]
fn never_until_faults_are_cleared() {
    let mut b = bench();
    b.control
        .fault("op=QUERY_ISSI act=never count=1")
        .expect("fault");
    b.submit(1);
    // Others go on.
    b.submit(2);
    b.d.wait(2);
    assert!(!b.d.done(1));
    let s = b.control.status().expect("status");
    assert_eq!(s.in_flight.len(), 1);
    assert_eq!(
        (s.in_flight[0].slot, s.in_flight[0].fault.as_deref()),
        (1, Some("never"))
    );
    assert_eq!(b.control.clear_faults().expect("clear").released, 1);
    assert_eq!(b.d.wait(1).status(), 0);
    eventually("events", || {
        b.control.status().expect("status").eqs[0].pi == 2
    });
    assert_eq!(b.events(), [1 << 2, 1 << 1]);
    b.no_violation();
}

#[test]
fn a_reset_forgets_what_was_never_answered() {
    let mut b = bench();
    b.control.fault("op=* act=never count=inf").expect("fault");
    b.submit(0);
    // Ringing again for a slot that is not done is the driver's mistake.
    b.d.ring(0);
    assert_eq!(
        b.control.violations(true).expect("violations").violations[0].rule,
        "slot_reused"
    );
    b.d.vfu.write(REGION_CONFIG, 0x68, &[0x10, 0xa9]);
    assert_eq!(b.control.clear_faults().expect("clear").released, 0);
    b.d.vfu.master(true);
    assert!(!b.d.done(0), "nothing was written after the reset");
}

#[test]
fn nothing_is_written_while_bus_master_is_off() {
    let mut b = bench();
    b.control.fault("op=QUERY_ISSI act=hold").expect("fault");
    b.submit(0);
    b.d.vfu.master(false);
    assert_eq!(
        b.control.release().expect("release").released,
        0,
        "dropped when bus master went off"
    );
    b.d.vfu.master(true);
    assert!(!b.d.done(0));
    assert_eq!(b.control.status().expect("status").master_clears, 1);
    b.no_violation();
}

#[test]
fn hold_and_release() {
    let mut b = bench();
    b.control
        .fault("op=QUERY_ISSI act=hold count=3")
        .expect("fault");
    for slot in 0..3 {
        b.submit(slot);
    }
    assert_eq!(b.control.status().expect("status").in_flight.len(), 3);
    assert_eq!(b.control.release().expect("release").released, 3);
    assert!((0..3).all(|s| b.d.done(s)));
    assert_eq!(b.events(), [1, 2, 4]);
}

#[test]
fn late_and_delay_take_their_time_and_block_nobody() {
    for act in ["late", "delay"] {
        let mut b = bench();
        b.control
            .fault(&format!("op=QUERY_ISSI act={act} ms=300"))
            .expect("fault");
        let start = Instant::now();
        b.submit(0);
        b.submit(1);
        b.d.wait(1);
        b.control.status().expect("the loop goes on");
        assert!(!b.d.done(0) && start.elapsed() < Duration::from_millis(300));
        assert_eq!(b.d.wait(0).status(), 0);
        assert!(start.elapsed() >= Duration::from_millis(300));
    }
}

#[test]
fn answered_twice() {
    let mut b = bench();
    b.control
        .fault("op=QUERY_ISSI act=twice ms=20")
        .expect("fault");
    b.submit(4);
    b.d.wait(4);
    eventually("second event", || {
        b.control.status().expect("status").eqs[0].pi == 2
    });
    assert_eq!(b.events(), [1 << 4, 1 << 4]);
}

#[test]
fn events_and_interrupts_lost_and_doubled() {
    for (act, events, interrupts) in [
        ("drop_event", 0, 0),
        ("dup_event", 2, 1),
        ("drop_irq", 1, 0),
        ("dup_irq", 1, 2),
    ] {
        let mut b = bench();
        b.control
            .fault(&format!("op=QUERY_ISSI act={act}"))
            .expect("fault");
        b.submit(0);
        b.d.wait(0);
        // The doorbell's reply came after all of it.
        assert_eq!(
            (b.events().len(), b.d.interrupts(0)),
            (events, interrupts),
            "{act}"
        );
        // And then as usual.
        b.submit(0);
        b.d.wait(0);
        assert_eq!((b.events().len(), b.d.interrupts(0)), (1, 1), "after {act}");
    }
}

#[test]
fn wrong_tokens_delivery_and_noise() {
    let mut b = bench();
    b.control
        .fault("op=QUERY_ISSI act=bad_token")
        .expect("fault");
    let token = b.submit(0);
    assert_eq!(b.d.wait(0).token, token ^ 0xff);
    b.control
        .fault("op=QUERY_ISSI act=delivery delivery=0x6")
        .expect("fault");
    b.submit(0);
    assert_eq!(b.d.wait(0).delivery, 6);
    b.control.fault("op=QUERY_ISSI act=garbage").expect("fault");
    b.submit(0);
    let out = b.d.wait(0);
    assert_eq!((out.delivery, out.status(), out.syndrome()), (0, 0, 0));
    b.control
        .fault("op=QUERY_ISSI act=patch at=0x6e data=00020000")
        .expect("fault");
    b.submit(1);
    // Bytes beyond the end of the output are ignored.
    assert_eq!(b.d.wait(1).data[0x6c..], [0, 0, 0, 2]);
    assert!(
        out.data[8..].iter().filter(|x| **x != 0).count() > 90,
        "{:02x?}",
        out.data
    );
    b.no_violation();
}

#[test]
fn requests_that_make_no_sense_are_refused_with_a_reason() {
    let model = Model::start();
    let mut control = model.control();
    for (line, hint) in [
        ("", "empty"),
        ("frobnicate", "page_request"),
        ("status x=1", "x=1"),
        ("fault act=never", "op=..."),
        ("fault op=NO_SUCH act=never", "ENABLE_HCA"),
        ("fault op=* act=explode", "garbage"),
        ("fault op=* act=status", "status=..."),
        ("fault op=* act=status status=ODD", "BAD_PARAM"),
        ("fault op=* act=delivery delivery=0x80", "7 bits"),
        ("fault op=* act=never count=-1", "count"),
        ("cap page=nope field=dct", "atomic"),
        ("cap page=general field=nope", "nope"),
        ("cap page=general field=dct cur=2", "does not fit"),
        ("event type=300", "300"),
        ("event type=9", "no EQ"),
        ("event type=9 data=abc", "hexadecimal"),
        ("page_request", "npages"),
        ("initializing", "hold=1"),
        ("initseg field=nope value=1", "cmd_interface_rev"),
        ("ones", "ms=N"),
        ("ones on ms=1", "one of"),
        ("ones on initializing=5", "reset=1"),
        ("fatal nic=2", "[0, 1, 7]"),
        ("health severity=8", "debug"),
        ("health counter=jump", "value=N"),
        ("health value=0x1000000", "at most"),
        ("stale", "pages=..."),
        ("stale pages=0x10000000", "at most"),
        ("nic_interface delay=soon", "never"),
        (
            "fault op=* act=patch at=0 data=00000000000000000000000000000000ff",
            "16 bytes",
        ),
        ("fault op=* act=teardown_state_failed", "TEARDOWN_HCA"),
    ] {
        let e = control.run(line).expect_err(line).to_string();
        assert!(e.contains(hint), "{line}: {e}");
    }
    // And the socket still works, for several clients at once.
    let mut second = model.control();
    assert_eq!(second.status().expect("status").commands, 0);
    assert_eq!(control.status().expect("status").commands, 0);
}

#[test]
fn reset_is_as_power_on() {
    let mut b = bench();
    b.control.fault("op=* act=never count=inf").expect("fault");
    b.control.set_cap("general", "dct", 1, 1).expect("cap");
    b.d.vfu.write32(0, 0);
    b.control.run("reset").expect("reset");
    let s = b.control.status().expect("status");
    assert_eq!(
        (s.state, s.commands, s.violations, s.pages.boot),
        (State::Reset, 0, 0, 320)
    );
    assert!(s.connected && s.dma_maps > 0);
    assert_eq!(b.control.faults().expect("faults").faults, []);
    assert_eq!(b.control.cap("general", "dct").expect("cap").max, 0);
    // The client goes on without having to connect again.
    b.d.set_queue();
    b.d.init();
    b.no_violation();
    drop(b.model);
}
