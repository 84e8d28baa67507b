// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of profiles, of their steps and of lengths.

use crate::schema::key::{integer, table, Flag, Form, Integer, Maybe, Word};
use crate::schema::limits::{ITERATIONS_MAX, LOCKS_MAX};
use crate::schema::program::{Calibration, Dist, Op, Profile, Step};
use std::marker::PhantomData;

table! { PROFILE: Profile = "", "A workload: the program that every thread of a VM runs.";
    NAME: Form = "name", Form("a string") =>
        .needed("the file's name without .toml")
        .help("the file's name without .toml");
    SPIN_INTENSIVE: Flag = "spin_intensive", Flag =>
        .needed("true or false")
        .help("whether it is included in means over profiles that spin");
    CALIBRATION: Form = "calibration", Form("a table") =>
        .usually("no record")
        .help("source of its numbers, see below; has no effect on runs");
    STEP_TABLES: Form = "step", Form("1 to 32 tables") =>
        .needed("[[step]] tables")
        .help("the program; one pass over its steps is a unit of work");
}

table! { RECORD: Calibration = "[calibration]", "Where the program's numbers are from.";
    DATE: Form = "date", Form("a string") =>
        .needed("a day, as 2026-11-22")
        .help("date of the record");
    ENTRIES: Form = "entries", Form("a list of claims' ids, or []") =>
        .needed("a list of claims' ids, or []")
        .help("claims of kind calibrate that it was fitted to (`unspin-lab figures --list`)");
    HOW: Form = "how", Form("a string") =>
        .needed("what was tried, and what was chosen")
        .help("what was tried, and what was chosen");
    SHA256: Form = "sha256", Form("64 hexadecimal digits") =>
        .needed("the hash of the program")
        .help("hash of the program; a test fails if the program differs");
}

table! { STEP: Step = "[[step]]", "One step of the program.";
    OP: Word<Op> = "op", Word(PhantomData) =>
        .needed("what the step does")
        .help("what it does; see below");
    LOCK: Integer<u32> = "lock", integer(0, LOCKS_MAX - 1, " (which lock)") =>
        .usually(0)
        .help("which lock, or which mutex");
    ITERATIONS: Form = "iterations", Form(LENGTH_FORMS) =>
        .usually("see below")
        .help("its length");
    CHANCE: Form = "chance", Form(CHANCES) =>
        .usually("`1`")
        .help("probability of the step; a lock that is not taken skips to the step after its \
               unlock");
}

pub(crate) const CHANCES: &str = "a fraction over 0, at most 1, in steps of 0.001";

pub(crate) const LENGTH_FORMS: &str =
    "N, { uniform = [least, most] }, { exp_mean = N } or { exp_mean = N, max = N }";

pub(crate) const LENGTH: Integer<u32> = integer(1, ITERATIONS_MAX, " (or a table)");

table! { DRAWN: Dist = "iterations = { … }", "A random length, drawn for each pass.";
    UNIFORM: Form = "uniform", Form("[least, most]") =>
        .usually("(needed without `exp_mean`)")
        .help("uniform between 2 numbers, 0 to 1000000000");
    EXP_MEAN: Maybe<Integer<u32>> = "exp_mean", Maybe(integer(1, ITERATIONS_MAX, "")) =>
        .usually("(needed without `uniform`)")
        .help("exponential with this mean");
    MAX: Maybe<Integer<u32>> = "max", Maybe(integer(1, ITERATIONS_MAX, " (the mean, or more)")) =>
        .usually("16 times the mean")
        .help("upper limit of exp_mean");
}
