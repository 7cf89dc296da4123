// SPDX-License-Identifier: GPL-2.0

//! docs/model-control.md names everything that a reader of replies meets.

mod common;

use common::Model;
use mlx5_model::caps::KINDS;
use mlx5_model::checks::Rule;
use mlx5_model::cmdif::status::Syndrome;

const DOCS: &str = include_str!("../../../../docs/model-control.md");

#[test]
fn rules_syndromes_and_pages_are_in_the_docs() {
    for rule in Rule::ALL {
        assert!(
            DOCS.contains(&format!("| `{}` |", rule.name())),
            "{}",
            rule.name()
        );
    }
    for n in Syndrome::Opcode as u32..=Syndrome::TraceOwner as u32 {
        assert!(DOCS.contains(&format!("| {n:#x} |")), "{n:#x}");
    }
    for kind in KINDS {
        assert!(DOCS.contains(&format!("`{}`", kind.name)), "{}", kind.name);
    }
}

#[test]
fn verbs_and_keys_of_status_are_in_the_docs() {
    let model = Model::start();
    let mut control = model.control();
    let status: serde_json::Value = control.request("status").expect("status");
    for key in status
        .as_object()
        .expect("an object")
        .keys()
        .filter(|k| *k != "ok")
    {
        assert!(DOCS.contains(&format!("`{key}`")), "{key}");
    }
    let error = control
        .run("no_such_verb")
        .expect_err("no verb")
        .to_string();
    let (_, list) = error.split_once("there are ").expect("lists the verbs");
    for verb in list.split(", ") {
        assert!(DOCS.contains(&format!("`{verb}")), "{verb}");
    }
    let error = control
        .fault("op=* act=no_such_action")
        .expect_err("no action")
        .to_string();
    let (_, list) = error.split_once("not one of ").expect("lists the actions");
    for action in list.split(", ") {
        assert!(DOCS.contains(&format!("`{action}`")), "{action}");
    }
}
