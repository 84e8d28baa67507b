// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module's settings as people write them, and the reasons for refusals. Its files are in
//! [`unspin_host::module`].

use crate::bounds::{self, STEPS};
use crate::exit::{Cannot, Usage};
use anyhow::anyhow;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::Path;
use std::sync::LazyLock;
pub use unspin_host::module::root;
use unspin_host::module::{self, Refused, Whose};
use unspin_uapi::{setting_files, Coscheduling, Mode, Number, Variant};
use unspin_uapi::{COSCHEDULING, HVS_VARIANT, MODE};

/// The values of a file.
#[derive(Debug)]
enum Takes {
    /// One of these words.
    Word(Vec<&'static str>),
    Number(Number),
}

/// The writable files, in the order of writing.
static SETTINGS: LazyLock<Vec<(&str, Takes)>> =
    LazyLock::new(|| setting_files().chain([RESET]).map(|file| (file, Takes::of(file))).collect());
/// Exists only for VMs, and cannot be read.
const RESET: &str = "reset";

impl Takes {
    fn of(file: &str) -> Takes {
        let number = || Number::ALL.iter().find(|number| number.file() == file);
        Takes::Word(match file {
            HVS_VARIANT => Variant::ALL.iter().map(|v| v.name()).collect(),
            COSCHEDULING => Coscheduling::ALL.iter().map(|c| c.name()).collect(),
            MODE => Mode::ALL.iter().map(|m| m.name()).collect(),
            RESET => vec!["1"],
            _ => return number().map_or(Takes::Word(Vec::new()), |n| Takes::Number(*n)),
        })
    }

    fn accepts(&self, value: &str) -> bool {
        match self {
            Takes::Word(words) => words.contains(&value),
            Takes::Number(number) => {
                value.parse::<u32>().is_ok_and(|n| number.range().contains(&n))
            }
        }
    }
}

impl std::fmt::Display for Takes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Takes::Word(words) => f.write_str(&words.join(", ")),
            // A number whose unit describes the whole range.
            Takes::Number(n) if n.most() == 1 => f.write_str(n.unit()),
            Takes::Number(n) => {
                write!(f, "{} to {} {}", n.least(), n.most(), n.unit())?;
                match STEPS.contains(n) {
                    true => write!(f, ", up to {}", Number::WINDOW_MAX.file()),
                    false => Ok(()),
                }
            }
        }
    }
}

/// Every setting and its values, one per line.
pub fn settings_help() -> String {
    let line = |(key, takes): &(&str, Takes)| match *key {
        RESET => format!(
            "\n  {key}: {takes}; sets the counters of the VM named with --vm to 0, and starts APLE \
             again"
        ),
        _ => format!("\n  {key}: {takes}"),
    };
    SETTINGS.iter().map(line).collect()
}

/// Every setting.
pub fn keys() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|(key, _)| *key)
}

/// The allowed values of setting `key`, if `value` is not one of them; `None` for an unknown setting.
pub fn allowed_instead(key: &str, value: &str) -> Option<String> {
    let (_, takes) = SETTINGS.iter().find(|(k, _)| *k == key)?;
    (!takes.accepts(value)).then(|| takes.to_string())
}

/// The loaded module.
pub struct Module(module::Module);

impl Deref for Module {
    type Target = module::Module;

    fn deref(&self) -> &module::Module {
        &self.0
    }
}

impl Module {
    pub fn open(root: &Path) -> anyhow::Result<Module> {
        let not_loaded = || Cannot("the module is not loaded: sudo unspin load".to_string());
        Ok(Module(module::Module::open(root).ok_or_else(not_loaded)?))
    }

    /// The module, if its version is that of this command: in other versions, files may have another
    /// meaning.
    pub fn open_same_version(root: &Path) -> anyhow::Result<Module> {
        let module = Module::open(root)?;
        match module.other_version() {
            Some(why) => Err(Cannot(why).into()),
            None => Ok(module),
        }
    }

    /// An error text if the module's version is not that of this command.
    pub fn other_version(&self) -> Option<String> {
        let ours = env!("CARGO_PKG_VERSION");
        let version = self.value("version").unwrap_or_else(|| "unknown".to_string());
        (version != ours).then(|| {
            format!(
                "the loaded module has version {version}, this command has {ours}: install the \
                 same version of both (packages unspin and unspin-dkms), then run `unspin unload` \
                 and `unspin load`"
            )
        })
    }

    /// Writes settings of a VM or of the defaults: all, or none if a key or a value is invalid or
    /// the module refuses one.
    pub fn set(&self, vm: Option<&str>, pairs: &[(&str, &str)]) -> anyhow::Result<()> {
        check_settings(vm.is_some(), pairs)?;
        let whose = vm.map_or(Whose::Defaults, Whose::Vm);
        let order = |key: &str| SETTINGS.iter().position(|(k, _)| *k == key);
        let mut pairs = pairs.to_vec();
        pairs.sort_by_key(|(key, _)| order(key));
        self.write(whose, &pairs).map_err(|refused| {
            refused.changed.iter().for_each(|stays| say!("{stays}"));
            explain(refused, vm.is_some())
        })
    }
}

/// Checks settings of a VM or of the defaults as far as possible without the module.
pub fn check_settings(of_vm: bool, pairs: &[(&str, &str)]) -> Result<(), Usage> {
    for (i, (key, value)) in pairs.iter().enumerate() {
        check(of_vm, key, value)?;
        if pairs[..i].iter().any(|(k, _)| k == key) {
            return Err(Usage(format!("{key} is given twice")));
        }
    }
    let number = |key: &str| -> Option<u32> {
        let (_, value) = pairs.iter().find(|(k, _)| *k == key)?;
        value.parse().ok()
    };
    match bounds::contradictions(number).first() {
        Some(wrong) => {
            let (low, high) = (wrong.low, wrong.high);
            Err(Usage(format!("{low}: {wrong}; allowed: up to {high}")))
        }
        None => Ok(()),
    }
}

fn check(of_vm: bool, key: &str, value: &str) -> Result<(), Usage> {
    let Some((_, takes)) = SETTINGS.iter().find(|(k, _)| *k == key) else {
        let keys: Vec<&str> = SETTINGS.iter().map(|(k, _)| *k).collect();
        return Err(Usage(format!("no setting {key:?}; settings: {}", keys.join(", "))));
    };
    if key == RESET && !of_vm {
        return Err(Usage("reset needs a VM: name it with --vm".to_string()));
    }
    if !takes.accepts(value) {
        return Err(Usage(format!("{key}={value:?} is not allowed; allowed: {takes}")));
    }
    Ok(())
}

fn explain(refused: Refused, of_vm: bool) -> anyhow::Error {
    let Refused { path, setting: key, value, source: e, .. } = &refused;
    if e.kind() == ErrorKind::PermissionDenied {
        return Cannot(format!("{}: only root may change it", path.display())).into();
    }
    match e.raw_os_error() {
        Some(libc::EINVAL | libc::ERANGE) => {
            Usage(format!("the module refuses {key}={value}; see the kernel log (dmesg)")).into()
        }
        Some(libc::EBUSY) => Cannot(format!(
            "{key}={value}: a livepatch has replaced the KVM function that the module hooks (see \
             /sys/kernel/livepatch); only mode off works beside it"
        ))
        .into(),
        Some(libc::ENOENT | libc::ENODEV) if of_vm => anyhow!("the VM is gone"),
        _ => refused.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use std::fs;

    fn fake() -> Fake {
        let fake = Fake::new();
        for (id, mode) in [("90-0", "apples"), ("1200-0", "off"), ("1200-1", "off")] {
            fake.write(&format!("sys/vms/{id}/mode"), mode);
        }
        fake
    }

    #[test]
    fn sets_what_exists_and_names_what_does_not() {
        let fake = fake();
        let root = fake.0.join("sys");
        let m = Module::open(&root).unwrap();
        let set = |vm, pairs: &[(&str, &str)]| m.set(vm, pairs);
        let wrong = |vm, pairs: &[(&str, &str)]| m.set(vm, pairs).unwrap_err().to_string();
        set(None, &[("mode", "apples")]).unwrap();
        set(Some("90-0"), &[("mode", "hvs"), ("reset", "1")]).unwrap();
        assert_eq!(fs::read_to_string(root.join("default/mode")).unwrap(), "apples");
        assert_eq!(fs::read_to_string(root.join("vms/90-0/mode")).unwrap(), "hvs");
        assert_eq!(fs::read_to_string(root.join("vms/90-0/reset")).unwrap(), "1");
        assert!(wrong(None, &[("windw", "1")]).contains("delta_cycles"));
        assert!(wrong(None, &[("mode", "off"), ("mode", "hvs")]).contains("twice"));
        assert!(wrong(None, &[("reset", "1")]).contains("--vm"));
        assert!(wrong(Some("7-0"), &[("mode", "off")]).contains("the VM is gone"));
    }

    #[test]
    fn a_wrong_pair_changes_nothing() {
        let fake = fake();
        let root = fake.0.join("sys");
        let m = Module::open(&root).unwrap();
        for second in [
            ("windw", "5"),
            ("mode", "on"),
            ("window_min_cycles", "15"),
            ("window_max_cycles", "1073741825"),
            ("epoch_ple_exits", "0"),
            ("epoch_min_us", "1000001"),
            ("delta_cycles", "-1"),
            ("hvs_variant", "cpth"),
            ("reset", "2"),
        ] {
            let e = m.set(Some("90-0"), &[("mode", "off"), second]).unwrap_err();
            assert!(e.downcast_ref::<Usage>().is_some(), "{e}");
            assert_eq!(fs::read_to_string(root.join("vms/90-0/mode")).unwrap(), "apples\n");
        }
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        let wrong = |pairs: &[(&str, &str)]| check_settings(false, pairs).unwrap_err().to_string();
        let said = wrong(&[("window_min_cycles", "5000"), ("window_max_cycles", "4000")]);
        assert_eq!(
            said,
            "window_min_cycles: 5000 is above window_max_cycles = 4000; allowed: up to \
             window_max_cycles"
        );
        let said = wrong(&[("window_max_cycles", "4000"), ("delta_max_cycles", "5000")]);
        assert!(said.starts_with("delta_max_cycles: 5000 is above"), "{said}");
        check_settings(true, &[("window_min_cycles", "4000"), ("window_max_cycles", "4000")])
            .unwrap();
    }

    #[test]
    fn settings_are_written_in_their_order() {
        let fake = fake();
        let root = fake.0.join("sys");
        let m = Module::open(&root).unwrap();
        let dir = root.join("default");
        fs::write(dir.join("window_max_cycles"), "32768\n").unwrap();
        // Even root cannot write this.
        fs::create_dir(dir.join("delta_cycles")).unwrap();
        let pairs = [("mode", "hvs"), ("delta_cycles", "5"), ("window_max_cycles", "9000")];
        m.set(None, &pairs).unwrap_err();
        assert_eq!(fs::read_to_string(dir.join("window_max_cycles")).unwrap(), "32768");
        assert_eq!(fs::read_to_string(dir.join("mode")).unwrap(), "off\n", "comes last");
    }

    #[test]
    fn refusals_of_the_module_are_explained() {
        let e = |code, of_vm| {
            let source = std::io::Error::from_raw_os_error(code);
            let (path, setting, value) = ("/x/mode".into(), "mode".into(), "hvs".into());
            explain(Refused { path, setting, value, source, changed: vec![] }, of_vm)
        };
        let busy = e(libc::EBUSY, false);
        assert!(busy.downcast_ref::<Cannot>().is_some() && busy.to_string().contains("livepatch"));
        assert!(e(libc::ERANGE, false).downcast_ref::<Usage>().is_some());
        assert!(e(libc::EACCES, false).to_string().contains("only root"));
        assert!(e(libc::ENODEV, true).to_string().contains("gone"));
        let other = format!("{:#}", e(libc::EIO, false));
        assert!(other.starts_with("cannot write /x/mode: Input/output error"), "{other}");
        assert_eq!(other.matches("Input/output").count(), 1, "{other}");
    }

    #[test]
    fn bounds_and_words_are_the_modules() {
        let help = settings_help();
        for line in [
            "window_min_cycles: 16 to 1073741824 TSC cycles",
            "delta_cycles: 0 to 1073741824 TSC cycles, up to window_max_cycles",
            "wait_for_turns: 0 or 1",
            "hvs_variant: hvs, hvs-paper, cpth-r, cpth-l, cch, hvs-paper-lists, cpth-r-lists, \
             cpth-l-lists, cch-lists, hvs-displaced, hvs-paper-displaced",
            "mode: off, observe, aple, hvs, apples",
        ] {
            assert!(help.contains(&format!("\n  {line}\n")), "{help}");
        }
        check(false, "wait_for_turns", "1").unwrap();
        assert!(check(false, "wait_for_turns", "2").unwrap_err().to_string().contains("0 or 1"));
        let renamed = check(false, "hvs_variant", "paper").unwrap_err().to_string();
        assert!(renamed.contains("hvs-paper"), "{renamed}");
    }

    #[test]
    fn settings_that_stay_are_listed_with_what_they_take() {
        let names: Vec<&str> = setting_files().collect();
        assert!(names.contains(&"mode") && !names.contains(&RESET));
        assert_eq!(allowed_instead("mode", "apples"), None);
        assert!(allowed_instead("mode", "on").unwrap().contains("observe"));
        assert!(allowed_instead("epoch_ple_exits", "0").unwrap().starts_with("1 to "));
    }

    #[test]
    fn a_module_of_another_version_is_refused() {
        let fake = fake();
        let root = fake.0.join("sys");
        fs::remove_file(root.join("version")).unwrap();
        let refusal = || Module::open_same_version(&root).err();
        assert!(refusal().unwrap().to_string().contains("has version unknown"));
        fs::write(root.join("version"), "0.0.9\n").unwrap();
        let e = refusal().unwrap();
        assert!(e.downcast_ref::<Cannot>().is_some(), "{e}");
        assert!(e.to_string().contains("has version 0.0.9, this command has"), "{e}");
        fs::write(root.join("version"), format!("{}\n", env!("CARGO_PKG_VERSION"))).unwrap();
        assert!(refusal().is_none());
    }

    #[test]
    fn without_the_module_it_cannot() {
        let e = Module::open(Path::new("/nonexistent/unspin")).err().unwrap();
        assert!(e.downcast_ref::<Cannot>().is_some());
    }
}
