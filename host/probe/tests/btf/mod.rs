// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes type information in the format of /sys/kernel/btf, from a few lines that resemble C.

use libbpf_rs::libbpf_sys as sys;
use std::ffi::CString;
use std::fs;
use std::path::Path;

/// A file of types.
pub struct Types(*mut sys::btf);

fn text(name: &str) -> CString {
    CString::new(name).unwrap()
}

impl Types {
    /// Types of a kernel, or of a module of the kernel `base`. A line is `trace NAME(TYPE, …)` or
    /// `struct NAME { TYPE FIELD; … }`. The targets of pointers need no line.
    pub fn new(lines: &str, base: Option<&Types>) -> Types {
        // SAFETY: the base outlives what is made of it: both are leaked.
        let types = Types(unsafe {
            match base {
                Some(base) => sys::btf__new_empty_split(base.0),
                None => sys::btf__new_empty(),
            }
        });
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once(' ').unwrap() {
                ("trace", rest) => types.tracepoint(rest.strip_suffix(')').unwrap()),
                ("struct", rest) => types.structure(rest.strip_suffix('}').unwrap()),
                _ => panic!("{line}"),
            }
        }
        types
    }

    pub fn write(&self, path: &Path) {
        let mut size = 0;
        // SAFETY: the data is the object's, of the size that is written.
        let data = unsafe {
            let data = sys::btf__raw_data(self.0, &mut size).cast::<u8>();
            assert!(!data.is_null());
            std::slice::from_raw_parts(data, size as usize)
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }

    fn tracepoint(&self, line: &str) {
        let (name, passed) = line.split_once('(').unwrap();
        let passed = passed.split(',').map(str::trim).filter(|of| !of.is_empty());
        let passed: Vec<i32> = ["void *"].into_iter().chain(passed).map(|of| self.of(of)).collect();
        let empty = text("");
        // SAFETY: names are copied, and what is added stays.
        unsafe {
            let function = sys::btf__add_func_proto(self.0, 0);
            for parameter in passed {
                assert_eq!(sys::btf__add_func_param(self.0, empty.as_ptr(), parameter), 0);
            }
            let pointer = sys::btf__add_ptr(self.0, function);
            let name = text(&format!("btf_trace_{name}"));
            assert!(sys::btf__add_typedef(self.0, name.as_ptr(), pointer) > 0);
        }
    }

    fn structure(&self, line: &str) {
        let (name, fields) = line.split_once('{').unwrap();
        let fields = fields.split(';').map(str::trim).filter(|field| !field.is_empty());
        let of = |field: &str| {
            let (of, name) = field.rsplit_once(' ').unwrap();
            match name.split_once('[') {
                Some((name, _)) => (text(name), self.array(of)),
                None => (text(name), self.of(of)),
            }
        };
        let fields: Vec<(CString, i32)> = fields.map(of).collect();
        let name = text(name.trim());
        // SAFETY: as above. All fields lie at the structure's begin: nobody reads them.
        unsafe {
            assert!(sys::btf__add_struct(self.0, name.as_ptr(), 1024) > 0);
            for (name, of) in fields {
                assert_eq!(sys::btf__add_field(self.0, name.as_ptr(), of, 0, 0), 0);
            }
        }
    }

    fn array(&self, of: &str) -> i32 {
        let (of, index) = (self.of(of), self.of("u32"));
        // SAFETY: as above.
        unsafe { sys::btf__add_array(self.0, index, of, 16) }
    }

    fn of(&self, name: &str) -> i32 {
        let kind = sys::BTF_KIND_STRUCT;
        // SAFETY: as above.
        unsafe {
            if let Some(of) = name.strip_prefix("volatile ") {
                return sys::btf__add_volatile(self.0, self.of(of));
            }
            if let Some(to) = name.strip_suffix(" *") {
                return sys::btf__add_ptr(self.0, self.pointed_to(to));
            }
            if let Some(name) = name.strip_prefix("struct ") {
                return sys::btf__find_by_name_kind(self.0, text(name).as_ptr(), kind);
            }
            let (bytes, encoding) = match name {
                "bool" => (1, sys::BTF_INT_BOOL),
                "char" => (1, 0),
                "u16" => (2, 0),
                "u32" | "unsigned int" => (4, 0),
                "int" => (4, sys::BTF_INT_SIGNED),
                "u64" | "unsigned long" => (8, 0),
                "long" => (8, sys::BTF_INT_SIGNED),
                _ => panic!("{name}"),
            };
            let int = sys::btf__add_int(self.0, text(name).as_ptr(), bytes, encoding as i32);
            // The kernel's u32 is a typedef, too.
            match name.starts_with('u') {
                true => sys::btf__add_typedef(self.0, text(name).as_ptr(), int),
                false => int,
            }
        }
    }

    fn pointed_to(&self, name: &str) -> i32 {
        let Some(name) = name.strip_prefix("struct ") else { return 0 };
        let name = text(name);
        // SAFETY: as above.
        unsafe {
            match sys::btf__find_by_name_kind(self.0, name.as_ptr(), sys::BTF_KIND_STRUCT) {
                found if found > 0 => found,
                _ => sys::btf__add_fwd(self.0, name.as_ptr(), sys::BTF_FWD_STRUCT),
            }
        }
    }
}
