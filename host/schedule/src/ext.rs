// SPDX-License-Identifier: MIT OR Apache-2.0
//! What any scheduler of sched_ext needs of a program: whether the kernel can have one, how it is loaded, and why
//! it ended. bpf/ending.h has the other side.

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use unspin_text::read_kernel_text;

const REASON_BYTES: usize = 128;
/// How many of libbpf's last lines an error has.
const LOG_LINES: usize = 20;

/// Messages of libbpf, including the verifier's log.
static LOG: Mutex<String> = Mutex::new(String::new());

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kernel {release} has no sched_ext: {path} is missing (CONFIG_SCHED_CLASS_EXT)")]
    NoSchedExt { release: String, path: String },
    #[error("kernel {release} has no type information: {path} is missing (CONFIG_DEBUG_INFO_BTF)")]
    NoTypes { release: String, path: String },
    #[error(
        "the kernel is locked down (confidentiality in /sys/kernel/security/lockdown), and refuses programs that \
         read its memory: boot with lockdown=integrity, or without Secure Boot"
    )]
    LockedDown,
    #[error("another sched_ext scheduler is loaded: {name}; stop it first")]
    Occupied { name: String },
    #[error("the kernel refuses the scheduler: {what}\n{log}")]
    Load { what: libbpf_rs::Error, log: String },
    #[error("the kernel ended the scheduler: {reason}: {message}")]
    Ended { reason: String, message: String },
}

/// The release of the kernel of this `/proc`.
pub fn release(proc: &Path) -> String {
    read_kernel_text(proc.join("sys/kernel/osrelease")).unwrap_or_default().trim().to_string()
}

/// The error says why the kernel cannot have a scheduler now. Only loading shows whether its verifier accepts one.
///
/// # Errors
/// The kernel is locked down, or lacks sched_ext or type information, or another scheduler is loaded.
pub fn check(proc: &Path, sys: &Path) -> Result<(), Error> {
    let dir = sys.join("kernel/sched_ext");
    let path = dir.join("state");
    let Ok(state) = read_kernel_text(&path) else {
        let path = path.display().to_string();
        return Err(Error::NoSchedExt { release: release(proc), path });
    };
    let types = sys.join("kernel/btf/vmlinux");
    if !types.exists() {
        let path = types.display().to_string();
        return Err(Error::NoTypes { release: release(proc), path });
    }
    if state.trim() != "disabled" {
        let name = read_kernel_text(dir.join("root/ops")).unwrap_or_default();
        let name = match name.trim() {
            "" => "of unknown name",
            name => name,
        };
        return Err(Error::Occupied { name: format!("{name} ({})", state.trim()) });
    }
    let lockdown = read_kernel_text(sys.join("kernel/security/lockdown"));
    if lockdown.is_ok_and(|text| text.contains("[confidentiality]")) {
        return Err(Error::LockedDown);
    }
    Ok(())
}

/// Loads an object file with this `.rodata.config`, and those of its other programs that `is_wanted` names.
///
/// # Errors
/// The kernel refuses it, or libbpf does.
pub fn load(
    object: &[u8],
    config: &[u8],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Object, Error> {
    log().clear();
    libbpf_rs::set_print(Some((PrintLevel::Info, |_, text| log().push_str(&text))));
    let open = || {
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(object)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata.config") {
                let values = map.initial_value_mut().expect("a section has bytes");
                values[..config.len()].copy_from_slice(config);
            }
        }
        for mut program in open.progs_mut() {
            if !is_operation(&program.section().to_string_lossy()) {
                program.set_autoload(is_wanted(&program.name().to_string_lossy()));
            }
        }
        open.load()
    };
    open().map_err(refused)
}

/// Whether programs of a section are operations of the scheduler, and not beside it.
fn is_operation(section: &str) -> bool {
    section.starts_with("struct_ops")
}

/// Attaches the programs that `is_wanted` names, and then the scheduler, the map `ops`, which begins at once.
/// Dropping the links ends it.
///
/// # Errors
/// The kernel refuses it.
pub fn attach(
    object: &mut Object,
    ops: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Link>, Error> {
    let mut attach = || {
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if is_wanted(&program.name().to_string_lossy()) {
                links.push(program.attach()?);
            }
        }
        for mut map in object.maps_mut() {
            if map.name() == ops {
                links.push(map.attach_struct_ops()?);
            }
        }
        Ok(links)
    };
    attach().map_err(refused)
}

/// The map of this name, or the section that ends with it.
pub fn map<'a>(object: &'a Object, name: &str) -> Option<Map<'a>> {
    object.maps().find(|map| map.name().to_string_lossy().ends_with(name))
}

/// The values of a section.
///
/// # Errors
/// The kernel does not give them.
pub fn section(object: &Object, name: &str) -> libbpf_rs::Result<Option<Vec<u8>>> {
    let values = map(object, name).map(|map| map.lookup(&[0; 4], MapFlags::ANY));
    Ok(values.transpose()?.flatten())
}

fn log() -> std::sync::MutexGuard<'static, String> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(what: libbpf_rs::Error) -> Error {
    let log = log();
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    Error::Load { what, log: last.join("\n") }
}

/// Why the kernel ended a scheduler, the last member of its counts.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    kind: i32,
    reason: [u8; REASON_BYTES],
    message: [u8; REASON_BYTES],
}

impl Ending {
    /// # Errors
    /// The kernel has ended it.
    pub fn check(&self) -> Result<(), Error> {
        match self.kind {
            0 => Ok(()),
            _ => Err(Error::Ended { reason: text(&self.reason), message: text(&self.message) }),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A value that both sides share, as its bytes.
///
/// # Safety
/// `T` has numbers only, and no gaps between them.
pub unsafe fn bytes<T>(of: &T) -> &[u8] {
    std::slice::from_raw_parts((of as *const T).cast(), size_of::<T>())
}

/// A value that both sides share, of its bytes; `None` if there are fewer.
///
/// # Safety
/// Any bytes are a valid `T`.
pub unsafe fn value<T>(bytes: &[u8]) -> Option<T> {
    (bytes.len() >= size_of::<T>()).then(|| bytes.as_ptr().cast::<T>().read_unaligned())
}
