// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of programs that Linux guests run.

use crate::schema::key::{list, table, Form, List, Maybe};
use crate::schema::linux::GuestProgram;

table! { GUEST_PROGRAM: GuestProgram = "", "A program that Linux guests run, unmodified.";
    NAME: Form = "name", Form("a string") =>
        .needed("the file's name without .toml")
        .help("the file's name without .toml");
    TITLE: Form = "title", Form(LINE) =>
        .needed("one line that says what it does")
        .help("what it does");
    PACKAGES: Maybe<List<Form>> = "packages", Maybe(list("Debian's packages", Form(WORD))) =>
        .usually("none")
        .help("Debian's packages it comes from");
    SOURCES: Maybe<List<Form>> = "sources", Maybe(list("files of lab/guest/linux", Form(WORD))) =>
        .usually("none")
        .help("C files of lab/guest/linux that it is compiled from");
    FLAGS: Maybe<List<Form>> = "flags", Maybe(list("words for the compiler", Form(WORD))) =>
        .usually("none")
        .help("more options for the compiler");
    PREPARE: Form = "prepare", Form(LINE) =>
        .usually("nothing")
        .help("command that the guest's shell runs once before `command`");
    COMMAND: Form = "command", Form(LINE) =>
        .needed("what the guest's shell runs")
        .help("command that the guest's shell runs, with `$vcpus` and `$seed` set; it is killed \
               and restarted as needed");
    UNIT: Form = "unit", Form(LINE) =>
        .needed("what a unit of work is")
        .help("its unit of work, for reports");
    COUNTS: Maybe<List<Form>> = "counts", Maybe(list("functions of the C library", Form(WORD))) =>
        .usually("it counts by itself")
        .help("functions of the C library whose calls count as units; lab/guest/linux/count.c \
               lists the supported ones");
    FROM: Form = "from", Form(LINE) =>
        .needed("where it is from")
        .help("where it is from");
}

pub(crate) const LINE: &str = "a line of text";
pub(crate) const WORD: &str = "a word";
