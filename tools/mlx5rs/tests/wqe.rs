// SPDX-License-Identifier: GPL-2.0

//! `mlx5rs wqe` as people call it.
//!
//! `dumps/rdma-core.txt` is what rdma-core prints of three WQEs, the last one invalid; the other dumps
//! have the same WQEs in the forms of the kernel's print statements.

#![allow(missing_docs)]

use std::io::Write;
use std::process::{Command, Stdio};

struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

fn mlx5rs(args: &[&str], input: &[u8]) -> Answer {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5rs"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end without reading all.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Answer {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn dump(name: &str) -> String {
    format!("{}/tests/dumps/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A fetch-and-add of 8 bytes at an odd address.
const INVALID: &str = "00000512000042040000000800000000\n\
                       00000000000010040000007700000000\n\
                       00000000000000010000000000000000\n\
                       00000008000000660000000000002000\n";
/// An RC send.
const VALID: &str = "0000000a000042020000000800000000\n00001000000000660000000000002000\n";

#[test]
fn dumps_of_drivers() {
    let mut answers = Vec::new();
    for name in ["rdma-core.txt", "mlx5_ib.txt", "mlx5_core.txt"] {
        let answer = mlx5rs(&["wqe", &dump(name)], b"");
        assert_eq!(answer.code, Some(1), "{name}: {}", answer.err);
        // The lines are other ones.
        let text: String = answer
            .out
            .lines()
            .map(|line| match line.strip_prefix("line ") {
                Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()),
                None => line,
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        answers.push(text);
    }
    assert!(answers[0].contains("RDMA_WRITE") && answers[0].contains("UMR"));
    assert!(
        answers[0].ends_with("3 WQEs, 1 invalid\n"),
        "{}",
        answers[0]
    );
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}

#[test]
fn what_is_skipped_is_said() {
    let answer = mlx5rs(&["wqe", &dump("mlx5_core.txt")], b"");
    assert!(
        answer
            .err
            .contains("skipped 2 lines that are no part of a dump"),
        "{}",
        answer.err
    );
    assert_eq!(mlx5rs(&["wqe"], VALID.as_bytes()).err, "");
}

#[test]
fn fields_are_explained_and_the_invalid_one_marked() {
    let answer = mlx5rs(&["wqe"], INVALID.as_bytes());
    assert_eq!(answer.code, Some(1));
    let line = |field: &str| {
        let mut lines = answer.out.lines();
        lines
            .find(|line| line.split_whitespace().nth(1) == Some(field))
            .unwrap_or_else(|| panic!("no {field} in {}", answer.out))
            .to_owned()
    };
    assert!(line("opcode").contains("0x12  ATOMIC_FA"));
    assert!(line("swap_add").ends_with("0x0000000000000001"));
    let raddr = answer
        .out
        .lines()
        .find(|line| line.contains("0x0000000000001004"))
        .unwrap();
    assert!(raddr.contains("INVALID") && raddr.contains("multiple of 0x8"));
    assert_eq!(answer.out.matches("INVALID").count(), 1);
}

#[test]
fn binary_files_and_text_are_told_apart() {
    let bytes: Vec<u8> = VALID
        .split_whitespace()
        .flat_map(|line| {
            (0..line.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap())
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let path = file.path().to_str().unwrap();
    for answer in [
        mlx5rs(&["wqe", path], b""),
        mlx5rs(&["wqe"], &bytes),
        mlx5rs(&["wqe", "--input=binary", "-"], &bytes),
    ] {
        assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
        assert!(answer.out.starts_with("byte 0x0: WQE"), "{}", answer.out);
        assert!(answer.out.ends_with("1 WQE, 0 invalid\n"), "{}", answer.out);
    }
    // A ring: the second WQE is at the next basic block.
    let mut ring = bytes.clone();
    ring.resize(64, 0xee);
    ring.extend_from_slice(&bytes);
    let answer = mlx5rs(&["wqe"], &ring);
    assert!(answer.out.contains("\nbyte 0x40: WQE"), "{}", answer.out);
    assert!(
        answer.out.ends_with("2 WQEs, 0 invalid\n"),
        "{}",
        answer.out
    );
    // Letters can be a WQE too, if one says so.
    let answer = mlx5rs(&["wqe", "--input=binary"], b"aaaaaaaaaaaaaaaa");
    assert_eq!(answer.code, Some(1));
    assert!(answer.out.contains("queue 0x616161"), "{}", answer.out);
}

#[test]
fn json_is_one_object_a_line() {
    let answer = mlx5rs(&["wqe", "--json", &dump("rdma-core.txt")], b"");
    assert_eq!(answer.code, Some(1));
    let objects: Vec<serde_json::Value> = answer
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[0]["line"], 2);
    assert_eq!(objects[0]["valid"], true);
    assert_eq!(objects[0]["wqe"]["opcode"], "RDMA_WRITE");
    assert_eq!(objects[2]["valid"], false);
    let violation = &objects[2]["wqe"]["violations"][0];
    assert_eq!(violation["field"], "raddr");
    assert_eq!(violation["value"], "0x7fff00001004");
    let binary = mlx5rs(&["wqe", "--json", "--input=binary"], b"aaaaaaaaaaaaaaaa");
    let object: serde_json::Value = serde_json::from_str(&binary.out).unwrap();
    assert!(object["line"].is_null());
}

#[test]
fn only_what_is_invalid() {
    let answer = mlx5rs(&["wqe", "--check"], INVALID.as_bytes());
    assert_eq!(answer.code, Some(1));
    assert_eq!(answer.out.lines().count(), 2, "{}", answer.out);
    assert!(answer
        .out
        .starts_with("line 1: raddr.raddr at byte 0x10 is 0x1004"));
    let answer = mlx5rs(&["wqe", "--check"], VALID.as_bytes());
    assert_eq!(answer.code, Some(0));
    assert_eq!(answer.out, "1 WQE, 0 invalid\n");
}

/// Each option decides whether the same WQE is valid.
#[test]
fn what_is_known_of_the_queue_and_the_device() {
    let set_psv = "00000020000042020000000800000000\n00000123000000000000000000000000\n";
    for (input, args, field) in [
        (VALID, &["--qpn=0x43"] as &[_], "qpn"),
        (VALID, &["--index=1"], "wqe_index"),
        (VALID, &["--signed=true"], "signature"),
        (VALID, &["--transport=raw"], ""),
        (VALID, &["--caps=max_wqe_sz_sq=16"], "ds"),
        (set_psv, &["--pd=7", "--psv=0x123=8"], "psv_index"),
    ] {
        let valid = mlx5rs(&["wqe", "--check"], input.as_bytes());
        assert_eq!(valid.code, Some(0), "{}", valid.out);
        let mut all = vec!["wqe", "--check"];
        all.extend(args);
        let answer = mlx5rs(&all, input.as_bytes());
        assert_eq!(answer.code, Some(1), "{args:?}: {}", answer.out);
        assert!(answer.out.contains(field), "{args:?}: {}", answer.out);
    }
    for args in [
        &["--qpn=0x42"] as &[_],
        &["--index=0"],
        &["--signed=false"],
        &["--transport=uc"],
        &["--caps=none"],
    ] {
        let mut all = vec!["wqe", "--check"];
        all.extend(args);
        assert_eq!(mlx5rs(&all, VALID.as_bytes()).code, Some(0), "{args:?}");
    }
    // The counter goes on: the second WQE of a ring.
    let second = VALID.replace("0000000a", "0000010a");
    let both = [VALID, "\n", &second].concat();
    let answer = mlx5rs(&["wqe", "--check", "--index=0"], both.as_bytes());
    assert_eq!(answer.code, Some(0), "{}", answer.out);
}

#[test]
fn a_capability_that_is_missing_is_named() {
    let answer = mlx5rs(&["wqe", "--check", "--caps", "none"], INVALID.as_bytes());
    assert!(answer.out.contains("atomic_operations"), "{}", answer.out);
    let answer = mlx5rs(
        &[
            "wqe",
            "--check",
            "--caps",
            "none,atomic_operations=2,atomic_size_qp=8",
        ],
        INVALID.as_bytes(),
    );
    assert!(!answer.out.contains("atomic_operations"), "{}", answer.out);
}

#[test]
fn a_wqe_that_is_cut_short() {
    let cut = &VALID[..33];
    let answer = mlx5rs(&["wqe", "--check"], cut.as_bytes());
    assert_eq!(answer.code, Some(1));
    assert!(answer.out.contains("ctrl.ds"), "{}", answer.out);
    let answer = mlx5rs(&["wqe", "--check"], b"00 01 02");
    assert_eq!(answer.code, Some(1), "{}{}", answer.out, answer.err);
}

#[test]
fn bad_input_and_bad_options() {
    for (args, input, part) in [
        (&["wqe"] as &[&str], "" as &str, "no bytes: expected a WQE"),
        (&["wqe"], "hello\n", "without a dump: expected a WQE"),
        (
            &["wqe"],
            "00 01\n0x0g\n",
            "standard input: line 2: `0x0g`: expected an even number of hex digits",
        ),
        (
            &["wqe", "/no/such/file"],
            "",
            "/no/such/file: cannot be read",
        ),
        (&["wqe", "--transport=tcp"], VALID, "expected one of rc, uc"),
        (&["wqe", "--caps=fast"], VALID, "`fast`: expected all, none"),
        (
            &["wqe", "--caps=sho=7"],
            VALID,
            "sho: `7`: expected a number",
        ),
        (&["wqe", "--qpn=0x1000000"], VALID, "from 0 to 0xffffff"),
        (&["wqe", "--index=-1"], VALID, "`-1`: expected a number"),
        (
            &["wqe", "--pd=1", "--psv=5"],
            VALID,
            "<its protection domain>",
        ),
        (&["wqe", "--psv=5=1"], VALID, "--pd"),
        (&["wqe", "--json", "--check"], VALID, "cannot be used with"),
        (&[], "", "Usage"),
    ] {
        let answer = mlx5rs(args, input.as_bytes());
        assert_eq!(
            answer.code,
            Some(2),
            "{args:?}: {}{}",
            answer.out,
            answer.err
        );
        assert!(answer.err.contains(part), "{args:?}: {}", answer.err);
        assert_eq!(answer.out, "", "{args:?}");
    }
}

#[test]
fn input_without_end_is_refused() {
    let huge = vec![b'0'; (16 << 20) + 1];
    let answer = mlx5rs(&["wqe"], &huge);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.err.contains("at most 16777216 bytes"),
        "{}",
        answer.err
    );
}

#[test]
fn help_says_what_there_is() {
    let answer = mlx5rs(&["wqe", "--help"], b"");
    assert_eq!(answer.code, Some(0));
    for part in [
        "--json",
        "--caps",
        "wqe_vlan_insert",
        "Exit code:",
        "dump_wqe",
        "ud-offload",
    ] {
        assert!(answer.out.contains(part), "{part}: {}", answer.out);
    }
    let answer = mlx5rs(&["--help"], b"");
    assert!(answer.out.contains("wqe"), "{}", answer.out);
}

/// The examples in the documentation are what the tool says.
#[test]
fn documentation_is_real() {
    let doc = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wqe.md");
    let doc = std::fs::read_to_string(doc).unwrap();
    let all = mlx5rs(&["wqe", &dump("mlx5_core.txt")], b"").out;
    let (_, last) = all.rsplit_once("\n\n").unwrap();
    let check = mlx5rs(&["wqe", "--check", &dump("mlx5_ib.txt")], b"").out;
    for text in [last, &check] {
        assert!(
            doc.contains(&format!("```\n{text}```\n")),
            "not in it:\n{text}"
        );
    }
}
