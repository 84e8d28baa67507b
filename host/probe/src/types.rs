// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of a kernel and its modules, from its type information (BTF).

use libbpf_rs::libbpf_sys as sys;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null_mut, NonNull};

/// Limit of typedefs and qualifiers in a chain; a kernel has no longer chains.
const STEPS_MAX: usize = 32;

/// The kind of a type, as far as it matters for reading a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A number or an enumeration of this many bytes.
    Number(u32),
    /// A pointer to the structure with this name, or to something else.
    Pointer(Option<String>),
    /// A structure, an array, or another kind.
    Other,
}

/// The type of an argument or a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    pub kind: Kind,
    /// The name in C.
    name: String,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A file with type information.
struct Btf(NonNull<sys::btf>);

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: this object owns it, and nothing borrows from it any more.
        unsafe { sys::btf__free(self.0.as_ptr()) };
    }
}

/// Whether a file has all types it refers to. Then its strings begin with an empty one.
fn is_whole(path: &Path) -> bool {
    let bytes = unspin_text::read_kernel(path).unwrap_or_default();
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(four)).ok()
    };
    // The header's length is at offset 4, and the strings' offset behind the header at 16.
    let texts = || number(4)?.checked_add(number(16)?);
    bytes.starts_with(b"\x7fELF") || texts().and_then(|at| bytes.get(at)) == Some(&0)
}

/// A type's entry, as described in the kernel's Documentation/bpf/btf.rst.
struct Entry<'a> {
    name: String,
    kind: u32,
    /// The size if the kind has one, otherwise the type to which it refers.
    size_or_type: u32,
    /// Words of the following entries: three per member, two per parameter.
    list: &'a [u32],
}

impl Btf {
    /// `base`: the file whose type ids come before those of a module, if the module's file is not
    /// complete.
    fn parse(path: &Path, base: Option<&Btf>) -> io::Result<Btf> {
        // libbpf would wait for the writer of a FIFO.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let name = CString::new(path.as_os_str().as_bytes())?;
        let base = base.filter(|_| !is_whole(path));
        let base = base.map_or(null_mut(), |base| base.0.as_ptr());
        // SAFETY: the name ends with a NUL, and the base outlives the call; `Types` keeps it for longer
        // than what is split from it.
        let parsed = unsafe { sys::btf__parse_split(name.as_ptr(), base) };
        NonNull::new(parsed).map(Btf).ok_or_else(io::Error::last_os_error)
    }

    fn find(&self, name: &str, kind: u32) -> Option<u32> {
        let name = CString::new(name).ok()?;
        // SAFETY: both are valid during the call.
        let id = unsafe { sys::btf__find_by_name_kind(self.0.as_ptr(), name.as_ptr(), kind) };
        u32::try_from(id).ok().filter(|id| *id > 0)
    }

    fn entry(&self, id: u32) -> Option<Entry<'_>> {
        // SAFETY: libbpf returns null where there is no such type.
        let first = unsafe { sys::btf__type_by_id(self.0.as_ptr(), id).as_ref()? };
        let (kind, length) = (first.info >> 24 & 0x1f, (first.info & 0xffff) as usize);
        let words = match kind {
            sys::BTF_KIND_STRUCT | sys::BTF_KIND_UNION => 3 * length,
            sys::BTF_KIND_FUNC_PROTO => 2 * length,
            _ => 0,
        };
        let first: *const sys::btf_type = first;
        // SAFETY: libbpf has checked that the entries of a type lie within the data, which is aligned.
        let list = unsafe { std::slice::from_raw_parts(first.add(1).cast::<u32>(), words) };
        // SAFETY: as above. Both members of the union are the same number.
        let (name, size_or_type) = unsafe { ((*first).name_off, (*first).__bindgen_anon_1.size) };
        Some(Entry { name: self.text(name), kind, size_or_type, list })
    }

    fn text(&self, offset: u32) -> String {
        // SAFETY: libbpf returns null where there is no such text; all end with a NUL.
        let text = unsafe { sys::btf__name_by_offset(self.0.as_ptr(), offset) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Follows typedefs and qualifiers.
    fn plain(&self, mut id: u32) -> Option<(u32, Entry<'_>)> {
        for _ in 0..STEPS_MAX {
            let entry = self.entry(id)?;
            match entry.kind {
                sys::BTF_KIND_TYPEDEF
                | sys::BTF_KIND_CONST
                | sys::BTF_KIND_VOLATILE
                | sys::BTF_KIND_RESTRICT
                | sys::BTF_KIND_TYPE_TAG => id = entry.size_or_type,
                _ => return Some((id, entry)),
            }
        }
        None
    }

    fn type_of(&self, id: u32) -> Option<Type> {
        let called = self.entry(id)?.name;
        let (_, plain) = self.plain(id)?;
        let (kind, name) = match plain.kind {
            sys::BTF_KIND_INT | sys::BTF_KIND_ENUM | sys::BTF_KIND_ENUM64 => {
                (Kind::Number(plain.size_or_type), called)
            }
            sys::BTF_KIND_PTR => {
                let of = self.plain(plain.size_or_type).map(|(_, of)| of);
                let is_structure =
                    |of: &Entry| [sys::BTF_KIND_STRUCT, sys::BTF_KIND_FWD].contains(&of.kind);
                let structure = of.as_ref().filter(|of| is_structure(of)).map(|of| &of.name);
                let name = match (structure, &of) {
                    (Some(structure), _) => format!("struct {structure} *"),
                    (None, Some(of)) if !of.name.is_empty() => format!("{} *", of.name),
                    _ => "void *".into(),
                };
                (Kind::Pointer(structure.cloned()), name)
            }
            sys::BTF_KIND_STRUCT => (Kind::Other, format!("struct {}", plain.name)),
            _ => (Kind::Other, if called.is_empty() { "another type".into() } else { called }),
        };
        Some(Type { kind, name })
    }

    /// The parameters of a tracepoint's probes without the first, which is the probe's data.
    fn prototype(&self, tracepoint: &str) -> Option<Vec<Type>> {
        let typedef = self.find(&format!("btf_trace_{tracepoint}"), sys::BTF_KIND_TYPEDEF)?;
        let (_, pointer) = self.plain(typedef)?;
        let (_, function) = self.plain(pointer.size_or_type)?;
        if pointer.kind != sys::BTF_KIND_PTR || function.kind != sys::BTF_KIND_FUNC_PROTO {
            return None;
        }
        let parameters = function.list.chunks_exact(2).skip(1);
        parameters.map(|parameter| self.type_of(parameter[1])).collect()
    }

    /// The type of a structure's member, including members of unnamed structures in it.
    fn member(&self, structure: u32, name: &str, depth: usize) -> Option<u32> {
        let (_, entry) = self.plain(structure)?;
        if ![sys::BTF_KIND_STRUCT, sys::BTF_KIND_UNION].contains(&entry.kind) || depth == 0 {
            return None;
        }
        entry.list.chunks_exact(3).find_map(|member| match self.text(member[0]) {
            found if found == name => Some(member[1]),
            found if found.is_empty() => self.member(member[1], name, depth - 1),
            _ => None,
        })
    }

    fn field(&self, structure: &str, path: &str) -> Option<Type> {
        let mut id = self.find(structure, sys::BTF_KIND_STRUCT)?;
        for name in path.split('.') {
            id = self.member(id, name, STEPS_MAX)?;
        }
        self.type_of(id)
    }
}

/// The types of a kernel and of the loaded KVM modules.
pub struct Types {
    /// Before the kernel's types, on which they are based: fields are dropped in this order.
    modules: Vec<Btf>,
    kernel: Btf,
}

/// The modules whose types are needed, if they are loaded and not built in.
const MODULES: [&str; 3] = ["kvm", "kvm_intel", "kvm_amd"];

impl Types {
    /// Reads the files in `dir`, which is `/sys/kernel/btf`.
    ///
    /// # Errors
    /// The path of a file that cannot be read, and the reason.
    pub fn read(dir: &Path) -> Result<Types, (PathBuf, io::Error)> {
        // The errors contain everything.
        libbpf_rs::set_print(None);
        let parse = |path: PathBuf, base| Btf::parse(&path, base).map_err(|e| (path, e));
        let kernel = parse(dir.join("vmlinux"), None)?;
        let files = MODULES.iter().map(|name| dir.join(name)).filter(|path| path.exists());
        let modules = files.map(|path| parse(path, Some(&kernel))).collect::<Result<_, _>>()?;
        Ok(Types { modules, kernel })
    }

    fn all(&self) -> impl Iterator<Item = &Btf> {
        std::iter::once(&self.kernel).chain(&self.modules)
    }

    /// The arguments of a tracepoint; `None` if it does not exist.
    pub fn prototype(&self, tracepoint: &str) -> Option<Vec<Type>> {
        self.all().find_map(|btf| btf.prototype(tracepoint))
    }

    /// The type of a field; `path` may contain dots for nested fields. `None` if it does not exist.
    pub fn field(&self, structure: &str, path: &str) -> Option<Type> {
        self.all().find_map(|btf| btf.field(structure, path))
    }
}
