// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiles and their programs.

use unspin_scenario::{parse_profile, Problem};

fn profile_problems(steps: &str) -> Vec<Problem> {
    let text = format!("name = \"p\"\nspin_intensive = true\n{steps}");
    parse_profile("p.toml", "p", &text).expect_err("the profile is wrong").0
}

fn steps(list: &[&str]) -> String {
    list.iter().map(|s| format!("[[step]]\n{}\n", s.replace("; ", "\n"))).collect()
}

#[track_caller]
fn wrong_program(list: &[&str], key: &str, words: &str) {
    let all = profile_problems(&steps(list));
    assert!(all.iter().any(|p| p.key == key && p.to_string().contains(words)), "{all:#?}");
}

const LOCK: &str = "op = \"lock\"";
const UNLOCK: &str = "op = \"unlock\"";
const HOLD: &str = "op = \"critical\"; iterations = 10";

#[test]
fn programs_pair_and_nest_their_locks() {
    wrong_program(&[LOCK, HOLD], "step[0]", "never released");
    wrong_program(&[HOLD, UNLOCK], "step[1]", "not held");
    wrong_program(&[HOLD], "step[0]", "outside any lock");
    wrong_program(&[LOCK, LOCK, UNLOCK, UNLOCK], "step[1]", "waits for itself");
    let l1 = "op = \"lock\"; lock = 1";
    let u1 = "op = \"unlock\"; lock = 1";
    wrong_program(&[LOCK, l1, UNLOCK, u1], "step[2]", "taken last");
    wrong_program(&[l1, LOCK, UNLOCK, u1], "step[1]", "takes lock 0 while holding lock 1");
    wrong_program(&[l1, LOCK, UNLOCK, u1], "step[1]", "ascending order");
    wrong_program(&[LOCK, l1, u1, UNLOCK, l1, LOCK, UNLOCK, u1], "step[5]", "ascending order");
    wrong_program(&[LOCK, "op = \"barrier\"", UNLOCK], "step[1]", "while holding a lock");
    wrong_program(&[LOCK, "op = \"block\"; iterations = 5", UNLOCK], "step[1]", "while holding");
    let take = "op = \"mutex\"";
    let give = "op = \"mutex-unlock\"";
    wrong_program(&[take], "step[0]", "never released");
    wrong_program(&[give], "step[0]", "not held");
    wrong_program(&[take, take, give], "step[1]", "one mutex at a time");
    wrong_program(&[take, "op = \"barrier\"", give], "step[1]", "while holding a mutex");
    wrong_program(&[LOCK, take, give, UNLOCK], "step[1]", "while holding a lock");
    let (wait, room) = ("op = \"socket-wait\"; iterations = 5", "op = \"socket-wait\"");
    let (open, close) = ("op = \"socket-lock\"", "op = \"socket-unlock\"");
    let right =
        format!("name = \"p\"\nspin_intensive = true\n{}", steps(&[wait, open, HOLD, close]));
    assert!(parse_profile("p.toml", "p", &right).is_ok());
    let all_of = |other| [wait, open, HOLD, close, other];
    wrong_program(&all_of("op = \"barrier\""), "step[4]", "with messages");
    wrong_program(&all_of("op = \"serial-first\"; iterations = 5"), "step[4]", "with messages");
    let drawn = "op = \"socket-wait\"; iterations = { uniform = [1, 5] }";
    wrong_program(&[drawn, open, HOLD, close], "step[0]", "is random, or missing");
    let seldom = "op = \"socket-wait\"; iterations = 5; chance = 0.5";
    wrong_program(&[seldom, open, HOLD, close], "step[0].chance", "always waited for");
    wrong_program(&[take, wait, give, open, HOLD, close], "step[1]", "waits for other threads");
    wrong_program(
        &[take, "op = \"serial-rotating\"; iterations = 5", give],
        "step[1]",
        "waits for other",
    );
    let lazy = "op = \"shootdown-lazy\"";
    wrong_program(
        &["op = \"lock\"; lock = 0", lazy, "op = \"unlock\"; lock = 0"],
        "step[1]",
        "waits while",
    );
    wrong_program(&[wait, open, HOLD], "step[1]", "the socket's lock is never released");
    wrong_program(
        &[wait, LOCK, open, UNLOCK, close],
        "step[3]",
        "unlocks lock 0, but the socket's",
    );
    wrong_program(&[LOCK, wait, UNLOCK, open, close], "step[1]", "while holding a lock");
    wrong_program(&[open, HOLD, close], "step[0]", "wait for it first");
    wrong_program(&[wait, open, close, open, close], "step[0]", "exactly one message");
    wrong_program(&[room, open, close], "step[0].iterations", "missing");
    wrong_program(&["op = \"barrier\"; chance = 0.5"], "step[0].chance", "wait forever");
    wrong_program(&[LOCK, "op = \"unlock\"; chance = 0.5"], "step[1].chance", "goes with its lock");
    wrong_program(&["op = \"lock\"; lock = 16", UNLOCK], "step[0].lock", "0 to 15");
    wrong_program(&["op = \"compute\"; iterations = 5; lock = 0"], "step[0].lock", "takes no lock");
}

#[test]
fn lengths_are_one_distribution() {
    let length = |l: &str, key: &str, words: &str| {
        wrong_program(&[&format!("op = \"compute\"; iterations = {l}")], key, words);
    };
    length("0", "step[0].iterations", "1 to");
    length("\"5us\"", "step[0].iterations", "{ exp_mean = N }");
    length("{ uniform = [5, 1] }", "step[0].iterations.uniform", "5 is more than 1");
    length("{ uniform = [5] }", "step[0].iterations.uniform", "1 numbers");
    length("{ uniform = [1, 2], max = 5 }", "step[0].iterations", "not one distribution");
    length("{ exp_mean = 100, max = 50 }", "step[0].iterations.max", "the mean, or more");
    length("{ mean = 100 }", "step[0].iterations.mean", "unknown key");
    wrong_program(&["op = \"compute\""], "step[0].iterations", "missing");
    wrong_program(&["op = \"wake\"; iterations = 3"], "step[0].iterations", "has no length");
    wrong_program(&["op = \"compte\"; iterations = 3"], "step[0].op", "`compute`?");
    for chance in ["0", "1.5", "0.0005", "\"half\""] {
        let step = format!("op = \"compute\"; iterations = 1; chance = {chance}");
        wrong_program(&[&step], "step[0].chance", "steps of 0.001");
    }
}

#[test]
fn profiles_have_1_to_32_steps_and_their_files_name() {
    let step = "[[step]]\nop = \"compute\"\niterations = 1\n";
    assert!(profile_problems(&step.repeat(33))[0].message.contains("33 steps"));
    assert!(profile_problems("step = []")[0].message.contains("0 steps"));
    let text = format!("name = \"q\"\nspin_intensive = true\n{step}");
    assert!(parse_profile("p.toml", "p", &text).unwrap_err().0[0].message.contains("file's name"));
}
