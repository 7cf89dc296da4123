// SPDX-License-Identifier: GPL-2.0

//! Both sides of the bench do the same work.

use mlx5_bench::corpus::Corpus;
use mlx5_bench::ours::Ours;
use mlx5_bench::upstream::{Format, Upstream};
use mlx5_pure::tracer::format::{format, Line, Shape};

#[test]
fn the_same_messages() {
    let corpus = Corpus::new();
    let (mut ours, mut upstream) = (Ours::new(&corpus), Upstream::new(&corpus));
    for round in 1..3 {
        ours.rewind();
        upstream.rewind();
        assert_eq!(ours.read(), corpus.blocks());
        assert_eq!(upstream.read(), corpus.blocks());
        assert_eq!(ours.saved(), round * corpus.messages());
        assert_eq!(upstream.saved(), round * corpus.messages());
    }
    let messages = |get: &dyn Fn(u64) -> (u64, u8, String)| {
        let total = 2 * corpus.messages();
        // Upstream gives the messages of one timestamp's span in the order in which they end, too,
        // but borrows wrongly: only the low bits of times can be compared.
        (total.saturating_sub(8192)..total)
            .map(|n| {
                let (time, id, text) = get(n);
                (time & 0x7f, id, text)
            })
            .collect::<Vec<_>>()
    };
    let ours = messages(&|n| ours.message(n));
    assert!(ours.len() > 4000);
    assert_eq!(ours, messages(&|n| upstream.message(n)));
}

#[test]
fn the_same_blocks() {
    let corpus = Corpus::new();
    assert_eq!(Ours::new(&corpus).copy(), corpus.blocks());
    assert_eq!(Upstream::new(&corpus).copy(), corpus.blocks());
}

#[test]
fn the_same_text() {
    let words = [0x12, 0xffff_fff0, 0, 77, 0x8000_0000, 6, 7];
    for (text, count) in Corpus::formats() {
        let mut c = Format::new(text);
        assert_eq!(c.words() as usize, count);
        assert_eq!(usize::from(Shape::of(text.as_bytes()).words), count);
        let (mut a, mut b) = ([0; 512], [0; 512]);
        let len = c.print(&words, &mut a);
        let mut line = Line::new(&mut b);
        format(text.as_bytes(), &words, &mut line);
        assert_eq!(line.as_bytes(), &a[..len]);
    }
}
