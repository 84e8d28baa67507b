// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulator of machine `emulated`, as `--emulator` names it.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use unspin_computers::{Computer, Emulator, Topology};

/// Allowed values of the settings of the lab's QEMU.
const SETTING: RangeInclusive<u32> = 1..=65535;

/// An emulator for timed runs, and its settings other than the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    pub emulator: Emulator,
    quantum: Option<u32>,
    pause: Option<u32>,
    topology: Option<Topology>,
    module: bool,
}

impl Default for Timed {
    fn default() -> Timed {
        Timed {
            emulator: Emulator::Bochs,
            quantum: None,
            pause: None,
            topology: None,
            module: true,
        }
    }
}

impl Timed {
    /// Parses `bochs` or `qemu-amd`, then `,module=no`, and for `qemu-amd` also `,quantum=N`,
    /// `,pause=N` and `,topology=SxCxT`.
    pub fn parse(text: &str) -> Result<Timed, String> {
        let mut words = text.split(',');
        let name = words.next();
        let known = Emulator::TIMED.into_iter().find(|emulator| Some(emulator.name()) == name);
        let emulator = known.ok_or_else(|| {
            let names = Emulator::TIMED.map(Emulator::name).join(", ");
            format!("unknown emulator {text:?}; allowed: {names}")
        })?;
        let mut timed = Timed { emulator, ..Timed::default() };
        let mut keys = HashSet::new();
        for word in words {
            let refused = || {
                let (from, to) = (SETTING.start(), SETTING.end());
                let allowed = format!(
                    "quantum={from} to {to}, pause={from} to {to}, topology=SOCKETSxCORESxTHREADS \
                     with 1 or 2 threads"
                );
                format!(
                    "unknown setting {word:?}; allowed: module=no, and after {},: {allowed}",
                    Emulator::QemuAmd.name()
                )
            };
            let (key, value) = word.split_once('=').ok_or_else(refused)?;
            if !keys.insert(key) {
                return Err(format!("{key} is set twice; set it once"));
            }
            if word == "module=no" {
                timed.module = false;
                continue;
            }
            if timed.emulator != Emulator::QemuAmd {
                return Err(refused());
            }
            let number = || value.parse().ok().filter(|value| SETTING.contains(value));
            match key {
                "quantum" => timed.quantum = Some(number().ok_or_else(refused)?),
                "pause" => timed.pause = Some(number().ok_or_else(refused)?),
                "topology" => timed.topology = Some(Topology::parse(value).ok_or_else(refused)?),
                _ => return Err(refused()),
            }
        }
        Ok(timed)
    }

    pub fn computer(self, cpus: u32) -> Computer {
        let usual = Computer::of(self.emulator, cpus);
        Computer {
            quantum: self.quantum.unwrap_or(usual.quantum),
            pause: self.pause.unwrap_or(usual.pause),
            topology: self.topology,
            module: self.module,
            ..usual
        }
    }

    /// Whether it can have this many CPUs.
    pub fn has(self, cpus: u32) -> bool {
        match self.topology {
            Some(topology) => topology.cpus() == cpus,
            None => (1..=self.emulator.cpus_max()).contains(&cpus),
        }
    }

    /// The largest number of its CPUs, and, if another emulator has more, that number.
    pub fn cpus(self) -> String {
        if let Some(topology) = self.topology {
            return format!("{} with topology={topology}", topology.cpus());
        }
        let own = format!("1 to {} on machine emulated", self.emulator.cpus_max());
        let amd = Emulator::QemuAmd;
        match self.emulator == amd {
            true => own,
            false => format!("{own}, up to {} with --emulator {}", amd.cpus_max(), amd.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_is_named_with_its_settings() {
        assert_eq!(Timed::parse("bochs"), Ok(Timed::default()));
        let usual = Timed::parse("qemu-amd").unwrap().computer(16);
        assert_eq!((usual.cpus, usual.quantum, usual.pause), (16, 200, 1));
        let other = Timed::parse("qemu-amd,pause=40,quantum=50").unwrap().computer(4);
        assert_eq!((other.emulator, other.quantum, other.pause), (Emulator::QemuAmd, 50, 40));
        assert!(other.module && !Timed::parse("bochs,module=no").unwrap().computer(4).module);
        for (text, why) in [
            ("qemu", "bochs, qemu-amd"),
            ("", "bochs, qemu-amd"),
            ("bochs,quantum=50", "after qemu-amd"),
            ("qemu-amd,quantum=0", "quantum=1 to 65535"),
            ("qemu-amd,pause", "pause=1 to 65535"),
            ("qemu-amd,topology=2x2", "topology=SOCKETSxCORESxTHREADS"),
            ("qemu-amd,topology=2x2x3", "1 or 2 threads"),
            ("qemu-amd,topology=0x2x2", "topology="),
            ("bochs,topology=1x2x1", "after qemu-amd"),
            ("bochs,module=yes", "module=no"),
            ("qemu-amd,quantum=50,quantum=60", "quantum is set twice"),
            ("qemu-amd,topology=4x4x2", "topology="),
            ("qemu-amd,speed=2", "unknown setting \"speed=2\""),
        ] {
            let error = Timed::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_topology_says_how_many_cpus_there_are() {
        let two = Timed::parse("qemu-amd,topology=2x2x2").unwrap();
        assert!(two.has(8) && !two.has(4), "{}", two.cpus());
        assert_eq!(two.cpus(), "8 with topology=2x2x2");
        assert_eq!(two.computer(8).topology.unwrap().cpus(), 8);
    }

    #[test]
    fn who_wants_more_cpus_is_told_where_they_are() {
        assert!(Timed::default().cpus().contains("1 to 8"), "{}", Timed::default().cpus());
        assert!(Timed::default().cpus().contains("16 with --emulator qemu-amd"));
    }
}
