// SPDX-License-Identifier: GPL-2.0

//! Memory keys as a driver makes them, and each way to make them wrong.

mod common;

use common::*;
use mlx5_model::checks::Rule;
use mlx5_model::ifc;

const SIZE: u64 = 8 * 4096;

struct Bench {
    model: Model,
    d: Driver,
    pd: u32,
    buffer: u64,
    /// A page of the device.
    own: u64,
}

impl Bench {
    fn new() -> Self {
        let model = Model::start();
        let mut d = Driver::attach(&model);
        d.boot();
        let n = d.query_pages(2);
        let own = d.give(n as u32)[0];
        d.simple("INIT_HCA", "init_hca");
        let pd = d.alloc_pd();
        let buffer = d.ram.alloc(SIZE);
        Self {
            model,
            d,
            pd,
            buffer,
            own,
        }
    }

    fn pages(&self) -> Vec<u64> {
        (self.buffer..self.buffer + SIZE).step_by(4096).collect()
    }

    /// A key that is right.
    fn input(&self) -> Input {
        Driver::mkey_input(self.pd, self.buffer, SIZE, &self.pages())
    }

    fn physical(&self) -> Input {
        let mut input = Driver::mkey_input(self.pd, 0, 0, &[]);
        for (name, value) in [
            ("access_mode_1_0", 0),
            ("log_page_size", 0),
            ("length64", 1),
        ] {
            input = input.with(mkc(name), value);
        }
        input
    }

    fn status(&mut self, input: &Input) -> u8 {
        self.d.exec(input, 16).status()
    }

    fn down(mut self) {
        self.d.ok(&Driver::dealloc_pd_input(self.pd), "dealloc_pd");
        self.d.down();
        assert_broken(&self.model, &[]);
    }
}

#[test]
fn made_shown_and_destroyed() {
    let mut b = Bench::new();
    let input = b.input();
    let first = b.d.create_mkey(&input);
    assert_eq!(first & 0xff, 0x5a);
    let physical = b.physical();
    let second = b.d.create_mkey(&physical);
    assert_ne!(first >> 8, second >> 8);
    assert_eq!(b.model.control().status().expect("status").mkeys, 2);

    let query = Input::new("QUERY_MKEY", "query_mkey", 0)
        .with(field!("query_mkey_in", "mkey_index"), u64::from(first >> 8));
    let out = b.d.ok(&query, "query_mkey");
    let size = ifc::size_of("mkc");
    let at = field!("query_mkey_out", "memory_key_mkey_entry").byte();
    let from = mkc("free").byte();
    assert_eq!(out.data[at..at + size], input.0[from..from + size]);
    let at = field!("query_mkey_out", "bsf0_klm0_pas_mtt0_1").byte();
    let list: Vec<u8> = b.pages()[..4]
        .iter()
        .flat_map(|p| p.to_be_bytes())
        .collect();
    assert_eq!(out.data[at..at + 32], list);

    for key in [first, second] {
        b.d.ok(&Driver::destroy_mkey_input(key), "destroy_mkey");
    }
    // A number does not come back at once.
    let third = b.d.create_mkey(&input);
    assert!(third >> 8 > second >> 8);
    b.d.ok(&Driver::destroy_mkey_input(third), "destroy_mkey");
    b.down();
}

#[test]
fn unaligned_ranges_and_large_pages() {
    let mut b = Bench::new();
    // 4096 bytes from the middle of a page on are two pages.
    let pages = b.pages()[..2].to_vec();
    let input = Driver::mkey_input(b.pd, b.buffer + 0x800, 0x1000, &pages);
    let keys = [b.d.create_mkey(&input)];
    let short = Driver::mkey_input(b.pd, b.buffer + 0x800, 0x1000, &pages[..1]);
    assert_eq!(b.status(&short.with(mkc("len"), 0x1801)), 3);
    assert_broken(&b.model, &[Rule::Parameter]);
    let large = b.buffer.next_multiple_of(1 << 14);
    let input = Driver::mkey_input(b.pd, 0, 1 << 14, &[large]).with(mkc("log_page_size"), 14);
    let keys = [keys[0], b.d.create_mkey(&input)];
    for key in keys {
        b.d.ok(&Driver::destroy_mkey_input(key), "destroy_mkey");
    }
    b.down();
}

#[test]
fn each_mistake_shows() {
    let mut b = Bench::new();
    let good = b.input();
    let list = field!("create_mkey_in", "klm_pas_mtt").byte();
    let entry = |n: usize, value: u64| {
        let mut input = good.clone();
        input.0[list + 8 * n..list + 8 * n + 8].copy_from_slice(&value.to_be_bytes());
        input
    };
    let header = |name: &str| ifc::try_locate("create_mkey_in", name).expect("a field");
    let actual = header("translations_octword_actual_size");
    let mut odd = Driver::mkey_input(b.pd, b.buffer, 3 * 4096, &b.pages()[..3]);
    odd.0[list + 31] = 1;
    let cases: Vec<(&str, Input, &[Rule], u8)> = vec![
        (
            "no pd",
            good.clone().with(mkc("pd"), 99),
            &[Rule::UnknownObject],
            5,
        ),
        (
            "a qpn",
            good.clone().with(mkc("qpn"), 5),
            &[Rule::Parameter],
            3,
        ),
        (
            "klm",
            good.clone().with(mkc("access_mode_1_0"), 2),
            &[Rule::Opcode],
            3,
        ),
        (
            "ksm",
            good.clone().with(mkc("access_mode_1_0"), 3),
            &[Rule::Opcode],
            3,
        ),
        (
            "crossing",
            good.clone().with(mkc("access_mode_4_2"), 1),
            &[Rule::Opcode],
            3,
        ),
        (
            "small pages",
            good.clone().with(mkc("log_page_size"), 11),
            &[Rule::Parameter],
            3,
        ),
        (
            "huge pages",
            good.clone().with(mkc("log_page_size"), 63),
            &[Rule::Parameter],
            3,
        ),
        (
            "too long",
            good.clone().with(mkc("len"), SIZE + 1),
            &[Rule::Parameter],
            3,
        ),
        (
            "endless",
            good.clone().with(mkc("len"), u64::MAX),
            &[Rule::Parameter],
            3,
        ),
        (
            "no end",
            good.clone().with(mkc("length64"), 1).with(mkc("len"), 0),
            &[Rule::Parameter],
            3,
        ),
        (
            "free",
            good.clone().with(mkc("free"), 1),
            &[Rule::Parameter],
            3,
        ),
        (
            "signed",
            good.clone().with(mkc("bsf_en"), 1),
            &[Rule::Opcode],
            3,
        ),
        (
            "bsf size",
            good.clone().with(mkc("bsf_octword_size"), 4),
            &[Rule::Parameter],
            3,
        ),
        (
            "relaxed",
            good.clone().with(mkc("relaxed_ordering_write"), 1),
            &[Rule::Opcode],
            3,
        ),
        (
            "atomic",
            good.clone().with(mkc("a"), 1).with(mkc("lw"), 0),
            &[Rule::Parameter],
            3,
        ),
        (
            "on demand",
            good.clone().with(header("pg_access"), 1),
            &[Rule::Opcode],
            3,
        ),
        (
            "umem",
            good.clone().with(header("mkey_umem_valid"), 1),
            &[Rule::Opcode],
            3,
        ),
        (
            "short list",
            good.clone().with(actual, 3),
            &[Rule::Length],
            0x50,
        ),
        (
            "long list",
            good.clone().with(actual, 5),
            &[Rule::Length],
            0x50,
        ),
        (
            "size",
            good.clone().with(mkc("translations_octword_size"), 3),
            &[Rule::Parameter],
            3,
        ),
        (
            "misaligned page",
            entry(2, b.buffer + 0x10),
            &[Rule::Parameter],
            3,
        ),
        ("no memory", entry(2, 1 << 40), &[Rule::DmaUnmapped], 3),
        ("the device's page", entry(2, b.own), &[Rule::PageReused], 0),
        ("not padded", odd, &[Rule::Reserved], 0),
        (
            "reserved",
            good.clone().with(mkc("reserved_at_2"), 1),
            &[Rule::Reserved],
            0,
        ),
        (
            "physical with a list",
            good.clone().with(mkc("access_mode_1_0"), 0),
            &[Rule::Parameter],
            3,
        ),
    ];
    for (what, input, rules, status) in cases {
        let out = b.d.exec(&input, 16);
        let names: Vec<&str> = rules.iter().map(|r| r.name()).collect();
        assert_eq!(
            (out.status(), broken(&b.model)),
            (status, names.iter().map(|n| n.to_string()).collect()),
            "{what}"
        );
        if status == 0 {
            let index = out.get(field!("create_mkey_out", "mkey_index")) as u32;
            b.d.ok(&Driver::destroy_mkey_input(index << 8), "destroy_mkey");
        }
    }
    // A work request may bring pages later, and fill a free key.
    let umr = Driver::mkey_input(b.pd, b.buffer, SIZE, &[])
        .with(mkc("umr_en"), 1)
        .with(mkc("free"), 1)
        .with(mkc("translations_octword_size"), SIZE / 4096 / 2);
    let key = b.d.create_mkey(&umr);
    b.d.ok(&Driver::destroy_mkey_input(key), "destroy_mkey");
    b.down();
}

#[test]
fn what_is_in_use_or_gone() {
    let mut b = Bench::new();
    let input = b.input();
    let key = b.d.create_mkey(&input);
    assert_eq!(b.status(&Driver::dealloc_pd_input(b.pd)), 6);
    assert_broken(&b.model, &[Rule::Order]);
    b.d.ok(&Driver::destroy_mkey_input(key), "destroy_mkey");
    assert_eq!(b.status(&Driver::destroy_mkey_input(key)), 5);
    assert_broken(&b.model, &[Rule::UnknownObject]);
    b.d.create_mkey(&input);
    b.d.down();
    assert_broken(&b.model, &[Rule::ObjectsLeft]);
    // Nothing of it is left for the next driver.
    b.d.init();
    assert_eq!(b.model.control().status().expect("status").mkeys, 0);
    // A driver that could not destroy it is not to blame.
    b.pd = b.d.alloc_pd();
    let key = b.d.create_mkey(&b.input());
    let mut control = b.model.control();
    for op in ["DESTROY_MKEY", "DEALLOC_PD"] {
        control
            .fault(&format!("op={op} act=status status=INT_ERR"))
            .expect("fault");
    }
    assert_eq!(b.status(&Driver::destroy_mkey_input(key)), 1);
    assert_eq!(b.status(&Driver::dealloc_pd_input(b.pd)), 1);
    b.d.down();
    assert_broken(&b.model, &[]);
}
