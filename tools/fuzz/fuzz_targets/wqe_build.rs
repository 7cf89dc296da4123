// SPDX-License-Identifier: GPL-2.0

//! The builder with any arguments, one WQE after the other in a small ring: what it makes, the
//! validator takes; what it refuses leaves the queue alone; nothing is written outside a WQE.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_pure::wqe::*;

/// Takes numbers from the input; 0 when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte()))
    }

    fn bytes(&mut self, max: usize) -> &'a [u8] {
        let len = usize::from(self.byte()) % max;
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn remote(&mut self) -> Remote {
        Remote {
            addr: self.number(),
            rkey: self.byte().into(),
        }
    }

    fn local(&mut self) -> Local {
        Local {
            addr: self.number(),
            lkey: self.byte().into(),
        }
    }

    fn list(&mut self) -> Vec<Sge> {
        (0..self.byte() % 70)
            .filter_map(|_| Sge::new(self.number(), 1, self.number() as u32).ok())
            .collect()
    }
}

fn gather(input: &mut Input<'_>, wqe: Wqe<'_, Rc, build::Gather>) -> Result<Posted, Refusal> {
    let inline = input.bytes(255);
    wqe.data_list(&input.list())
        .inline(inline)
        .data_list(&input.list())
        .finish_checked()
}

fn one(input: &mut Input<'_>, queue: &mut SendQueue<'_, Rc>) -> Result<Posted, Refusal> {
    let wqe = queue.start(Flags::SIGNALED)?;
    match input.byte() % 9 {
        0 => wqe.nop().finish_checked(),
        1 => gather(input, wqe.send()),
        2 => {
            let remote = input.remote();
            gather(input, wqe.write_imm(remote, 7))
        }
        3 => {
            let wqe = wqe.read(input.remote());
            wqe.data_list(&input.list()).finish_checked()
        }
        4 => {
            let remote = input.remote();
            wqe.compare_swap(remote, input.number(), 1, input.local())?
                .finish_checked()
        }
        5 => {
            let width = [Width::One, Width::Two, Width::Four][usize::from(input.byte() % 3)];
            let semaphore = Semaphore::new(input.remote(), width)?;
            let operands = semaphore.fetch_add(input.byte().into())?;
            wqe.masked_fetch_add(semaphore.word(), &operands, input.local())?
                .finish_checked()
        }
        6 => {
            let klms: Vec<Klm> = (0..input.byte() % 70)
                .filter_map(|_| Klm::new(input.number(), 1, input.number() as u32).ok())
                .collect();
            let patch = MkeyPatch::new()
                .access_mode(AccessMode::Klm)
                .length(input.number())
                .log_page_size(input.byte())?;
            let place = match input.byte() % 2 {
                0 => Place::Whole,
                _ => Place::At(input.number()),
            };
            wqe.umr(&Umr {
                mkey: 1,
                check: Check::MustBeFree,
                check_qpn: false,
                patch,
                translations: Translations::Klms(&klms),
                place,
            })?
            .finish_checked()
        }
        7 => {
            let list = List::new(input.number(), 1, input.number() as u32)?;
            wqe.umr(&Umr {
                translations: Translations::List(list),
                ..Umr::default()
            })?
            .finish_checked()
        }
        _ => {
            let psv = Psv {
                index: Number::low(1),
                pd: Number::low(input.byte().into()),
            };
            wqe.set_psv(&SetPsv {
                psv,
                block_guard: 1,
                app_tag: 2,
                ref_tag: 3,
            })?
            .finish_checked()
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let config = Config {
        qpn: Number::low(0x42),
        pd: Number::low(7),
        signed: input.byte() & 1 != 0,
        caps: Caps::ALL,
    };
    let mut blocks = vec![[0xee; BLOCK]; 1 << (input.byte() % 6)];
    let mut at = Producer {
        pi: input.number() as u16,
        ci: 0,
    };
    at.ci = at.pi;
    while !input.0.is_empty() {
        let before = blocks.clone();
        let mut queue = match SendQueue::<Rc>::new(&mut blocks, &config, at) {
            Ok(queue) => queue,
            Err(error) => panic!("{error}"),
        };
        let free = queue.free();
        let done = one(&mut input, &mut queue);
        at = match done {
            // What was built from checked arguments is never found wrong afterwards.
            Err(Refusal::Invalid(violation)) => {
                assert!(violation.field != "reserved", "{violation}");
                queue.producer()
            }
            Err(Refusal::Full { needed, free: room }) => {
                assert!(needed > room && room == free);
                queue.producer()
            }
            Ok(posted) => {
                assert_eq!(
                    usize::from(posted.index) % before.len(),
                    usize::from(at.pi) % before.len()
                );
                assert!(usize::from(posted.ds.div_ceil(4)) <= free);
                queue.producer()
            }
        };
        // Blocks that were in use are as they were.
        for used in 0..before.len() - free {
            let index = usize::from(at.ci.wrapping_add(used as u16)) % before.len();
            assert_eq!(blocks[index], before[index]);
        }
        if input.byte() & 1 != 0 {
            at.ci = at.pi;
        }
    }
});
