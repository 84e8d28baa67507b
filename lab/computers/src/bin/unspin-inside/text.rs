// SPDX-License-Identifier: MIT OR Apache-2.0
//! The running kernel's code by function. Static keys, static calls and ftrace patch the code, so
//! equal code means equal behaviour.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// Modules whose code is included, besides the kernel's own.
const MODULES: &[&str] = &["[kvm]", "[kvm_amd]", "[kvm_intel]"];

/// Cached addresses of the functions, behind a check whether they are still valid.
const CACHE: &str = "/tmp/text-functions";

/// Writes one line per function: address, checksum, name.
pub fn save(file: &str) -> Result<String, String> {
    let kcore = Kcore::open()?;
    let mut out = String::new();
    let mut count = 0;
    for region in regions()? {
        let code = kcore.read(region.start, region.end)?;
        for (i, (at, name)) in region.functions.iter().enumerate() {
            let end = region.functions.get(i + 1).map_or(region.end, |next| next.0);
            let body = &code[(at - region.start) as usize..(end - region.start) as usize];
            out += &format!("{at:x} {:08x} {name}\n", crc32fast::hash(body));
            count += 1;
        }
    }
    fs::write(file, out).map_err(|e| format!("{file}: {e}"))?;
    Ok(format!("{count} functions"))
}

/// Names of functions whose code differs. Functions that only one has (a module's) are left out.
pub fn diff(a: &str, b: &str) -> Result<String, String> {
    let (a, b) = (load(a)?, load(b)?);
    let differ: Vec<&str> = a
        .iter()
        .filter(|(key, value)| b.get(*key).is_some_and(|other| other != *value))
        .map(|(key, _)| key.split_once(' ').map_or(key.as_str(), |(_, name)| name))
        .collect();
    let same = a.keys().filter(|key| b.contains_key(*key)).count();
    if same < 10_000 {
        return Err(format!("only {same} functions in common"));
    }
    Ok(differ.join(" "))
}

fn load(file: &str) -> Result<BTreeMap<String, String>, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let entry = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (at, value, name) = (words.next()?, words.next()?, words.next()?);
        Some((format!("{at} {name}"), value.to_string()))
    };
    Ok(text.lines().filter_map(entry).collect())
}

struct Region {
    start: u64,
    end: u64,
    functions: Vec<(u64, String)>,
}

/// The kernel's code and that of KVM's modules. /proc/kallsyms is slow to read, so the needed
/// addresses are cached until a module of KVM moves.
fn regions() -> Result<Vec<Region>, String> {
    let placed: Vec<String> = MODULES
        .iter()
        .map(|name| format!("/sys/module/{}/sections/.text", name.trim_matches(['[', ']'])))
        .map(|path| fs::read_to_string(path).unwrap_or_default().trim().to_string())
        .collect();
    let placed = placed.join(" ");
    let known = fs::read_to_string(CACHE).ok();
    if let Some((_, text)) =
        known.as_ref().and_then(|t| t.split_once('\n')).filter(|(p, _)| *p == placed)
    {
        return regions_of(text);
    }
    let all = fs::read_to_string("/proc/kallsyms").map_err(|e| format!("kallsyms: {e}"))?;
    let wanted = |line: &&str| {
        let module = line.split('\t').nth(1).unwrap_or_default();
        module.is_empty() || MODULES.contains(&module)
    };
    let text: String = all.lines().filter(wanted).flat_map(|line| [line, "\n"]).collect();
    fs::write(CACHE, format!("{placed}\n{text}")).map_err(|e| format!("{CACHE}: {e}"))?;
    regions_of(&text)
}

fn regions_of(text: &str) -> Result<Vec<Region>, String> {
    let mut all: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
    let mut bounds = [0, 0];
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(at), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let at = u64::from_str_radix(at, 16).map_err(|e| e.to_string())?;
        match name {
            "_stext" => bounds[0] = at,
            "_etext" => bounds[1] = at,
            _ => {}
        }
        let module = words.next().unwrap_or_default();
        if matches!(kind, "t" | "T") && (module.is_empty() || MODULES.contains(&module)) {
            all.entry(module).or_default().entry(at).or_insert(name);
        }
    }
    if bounds[0] == 0 {
        return Err("kallsyms shows no addresses; run as root".into());
    }
    let region = |(module, functions): (&str, BTreeMap<u64, &str>)| {
        let inside = |at: u64| !module.is_empty() || (bounds[0]..bounds[1]).contains(&at);
        let functions: Vec<(u64, String)> = functions
            .into_iter()
            .filter(|(at, _)| inside(*at))
            .map(|(at, name)| (at, name.to_string()))
            .collect();
        let (start, last) = (functions.first()?.0, functions.last()?.0);
        let end = if module.is_empty() { bounds[1] } else { (last / PAGE + 1) * PAGE };
        Some(Region { start, end, functions })
    };
    Ok(all.into_iter().filter_map(region).collect())
}

/// The kernel's memory as an ELF file.
struct Kcore {
    file: File,
    /// Address, length and offset in the file.
    segments: Vec<[u64; 3]>,
}

impl Kcore {
    fn open() -> Result<Kcore, String> {
        let file = File::open("/proc/kcore").map_err(|e| format!("/proc/kcore: {e}"))?;
        let mut header = [0u8; 64];
        file.read_exact_at(&mut header, 0).map_err(|e| format!("/proc/kcore: {e}"))?;
        let word = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        // Elf64_Ehdr: e_phoff, e_phentsize, e_phnum. Elf64_Phdr: p_offset, p_vaddr, p_memsz.
        let table = word(&header, 32);
        let [size, count] =
            [54, 56].map(|at| u64::from(u16::from_le_bytes([header[at], header[at + 1]])));
        let mut segments = Vec::new();
        for index in 0..count {
            let mut entry = [0u8; 56];
            file.read_exact_at(&mut entry, table + index * size).map_err(|e| e.to_string())?;
            segments.push([word(&entry, 16), word(&entry, 40), word(&entry, 8)]);
        }
        Ok(Kcore { file, segments })
    }

    fn read(&self, start: u64, end: u64) -> Result<Vec<u8>, String> {
        let found = self.segments.iter().find(|[at, length, _]| {
            start.checked_sub(*at).is_some_and(|offset| offset + (end - start) <= *length)
        });
        let [at, _, offset] = found.ok_or_else(|| format!("/proc/kcore has no {start:x}"))?;
        let mut code = vec![0; (end - start) as usize];
        self.file
            .read_exact_at(&mut code, offset + (start - at))
            .map_err(|e| format!("/proc/kcore at {start:x}: {e}"))?;
        Ok(code)
    }
}
