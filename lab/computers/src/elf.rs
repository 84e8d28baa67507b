// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads ELF files: the libraries of a program, and the entry point of a kernel.

use goblin::elf::header::EM_X86_64;
use goblin::elf::Elf;

/// The files that the dynamic linker loads for a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The dynamic linker itself, of a program.
    pub interpreter: Option<String>,
    /// Names of shared libraries (DT_NEEDED).
    pub libraries: Vec<String>,
    /// Directories in which they are searched first (DT_RUNPATH, DT_RPATH).
    pub run_paths: Vec<String>,
}

/// `None` if it is not an ELF file for x86-64.
pub(crate) fn needs(contents: &[u8]) -> Option<Needs> {
    let elf = Elf::parse(contents).ok().filter(|elf| elf.header.e_machine == EM_X86_64)?;
    let paths = elf.runpaths.iter().chain(&elf.rpaths).flat_map(|paths| paths.split(':'));
    Some(Needs {
        interpreter: elf.interpreter.map(str::to_string),
        libraries: elf.libraries.iter().map(|name| name.to_string()).collect(),
        run_paths: paths.filter(|path| !path.is_empty()).map(str::to_string).collect(),
    })
}

/// Whether a program has all its segments and its table of sections.
pub(crate) fn is_complete(contents: &[u8]) -> bool {
    let Ok(elf) = Elf::parse(contents) else { return false };
    let header = elf.header;
    let sections = u64::from(header.e_shnum) * u64::from(header.e_shentsize);
    let end = header.e_shoff.checked_add(sections);
    end.is_some_and(|end| end <= contents.len() as u64) && loaded_bytes(contents).is_some()
}

/// XEN_ELFNOTE_PHYS32_ENTRY of include/xen/interface/elfnote.h.
const PHYS32_ENTRY: u32 = 18;

/// Whether a kernel has an entry point for PVH boots.
pub(crate) fn has_pvh_entry(contents: &[u8]) -> bool {
    let Ok(elf) = Elf::parse(contents) else { return false };
    let is_entry = |n_type, name: &str| n_type == PHYS32_ENTRY && name == "Xen";
    elf.iter_note_headers(contents)
        .is_some_and(|notes| notes.flatten().any(|note| is_entry(note.n_type, note.name)))
}

/// The end of the last loaded segment in the file.
pub(crate) fn loaded_bytes(contents: &[u8]) -> Option<usize> {
    let elf = Elf::parse(contents).ok()?;
    let ends = elf.program_headers.iter().map(|segment| segment.p_offset + segment.p_filesz);
    ends.max().map(|end| end as usize).filter(|end| *end <= contents.len())
}
