// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guest accesses that KVM or the VMM emulates. Each access makes its vCPU leave the guest.

use crate::devices::{self, Kind};

/// A port, a register, or a page of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    pub kind: Kind,
    /// `None`: the accesses beyond the first few hundred addresses, which are not distinguished.
    pub address: Option<u64>,
}

/// The number of accesses, and their time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accessed {
    /// Number of exits for it.
    pub count: u64,
    /// Time of the vCPUs on a CPU, from these exits to the following entries, in ns.
    pub ns: u64,
    /// Number of these exits that the VMM served, not the kernel alone.
    pub visits: u64,
}

impl Accessed {
    /// The difference since `before`.
    pub fn since(&self, before: &Accessed) -> Accessed {
        Accessed {
            count: self.count.saturating_sub(before.count),
            ns: self.ns.saturating_sub(before.ns),
            visits: self.visits.saturating_sub(before.visits),
        }
    }
}

/// Accesses to one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub kind: Kind,
    /// The lowest and the highest address that was accessed; `None`: addresses that are not
    /// distinguished.
    pub range: Option<(u64, u64)>,
    /// The known device at these addresses.
    pub device: Option<&'static devices::Device>,
    pub accessed: Accessed,
}

impl Group {
    /// `ports 0x70-0x71: real-time clock (RTC)`.
    pub fn title(&self) -> String {
        let noun = match self.kind {
            Kind::Port => "port",
            Kind::Msr => "MSR",
            Kind::Mmio => "memory",
        };
        let place = match self.range {
            None => format!("{noun}: others"),
            Some((first, last)) if first == last => format!("{noun} {first:#x}"),
            Some((first, last)) if self.kind == Kind::Mmio => {
                format!("{noun} {first:#x}-{last:#x}")
            }
            Some((first, last)) => format!("{noun}s {first:#x}-{last:#x}"),
        };
        match self.device {
            Some(device) => format!("{place}: {}", device.name),
            None => place,
        }
    }
}

/// Groups accesses to one device, and neighbouring unknown addresses. The groups with most time
/// come first.
pub fn groups(accesses: impl IntoIterator<Item = (Access, Accessed)>) -> Vec<Group> {
    let mut all: Vec<(Access, Accessed)> = accesses.into_iter().collect();
    all.sort_by_key(|(access, _)| *access);
    let mut groups: Vec<Group> = Vec::new();
    for (access, accessed) in all.into_iter().filter(|(_, accessed)| accessed.count > 0) {
        let device = access.address.and_then(|address| devices::at(access.kind, address));
        let joins = |group: &&mut Group| {
            let is_near = match (group.range, access.address) {
                (Some((_, last)), Some(address)) => address - last <= reach(access.kind),
                (None, None) => true,
                _ => false,
            };
            let is_same = match (group.device, device) {
                (Some(a), Some(b)) => std::ptr::eq(a, b),
                (None, None) => is_near,
                _ => false,
            };
            group.kind == access.kind && is_same
        };
        let one = access.address.map(|address| (address, address));
        match groups.iter_mut().find(joins) {
            Some(group) => {
                group.range = group.range.zip(one).map(|((first, _), (_, last))| (first, last));
                group.accessed.count += accessed.count;
                group.accessed.ns += accessed.ns;
                group.accessed.visits += accessed.visits;
            }
            None => groups.push(Group { kind: access.kind, range: one, device, accessed }),
        }
    }
    groups.sort_by(|a, b| b.accessed.ns.cmp(&a.accessed.ns).then(a.range.cmp(&b.range)));
    groups
}

/// Unknown addresses that are at most this far apart count as one device.
fn reach(kind: Kind) -> u64 {
    match kind {
        Kind::Port => 0x20, // ports of a PCI device: 32 of a UHCI
        Kind::Msr => 0,
        Kind::Mmio => 0x1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(kind: Kind, address: u64, count: u64, ns: u64) -> (Access, Accessed) {
        (Access { kind, address: Some(address) }, Accessed { count, ns, visits: 0 })
    }

    #[test]
    fn ports_of_a_device_are_one_group() {
        let groups = groups([
            of(Kind::Port, 0x71, 5, 50),
            of(Kind::Port, 0x70, 5, 40),
            of(Kind::Port, 0xc0a2, 1, 7),
            of(Kind::Port, 0xc0b0, 1, 7),
            of(Kind::Port, 0xd000, 1, 1),
            of(Kind::Msr, 0x40000070, 9, 20),
            of(Kind::Mmio, 0xfed0_0000, 2, 30),
            (Access { kind: Kind::Port, address: None }, Accessed { count: 3, ns: 3, visits: 0 }),
            of(Kind::Msr, 0x10, 0, 0),
        ]);
        let titles: Vec<String> = groups.iter().map(Group::title).collect();
        assert_eq!(
            titles,
            [
                "ports 0x70-0x71: real-time clock (RTC)",
                "memory 0xfed00000: HPET timer",
                "MSR 0x40000070: Hyper-V: end of interrupt",
                "ports 0xc0a2-0xc0b0",
                "port: others",
                "port 0xd000",
            ]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_in_groups(
            all in prop::collection::vec((0..3usize, prop::option::of(0..0x1_0000_0000u64),
                0..1000u64, 0..1_000_000u64), 0..60),
        ) {
            let accesses: Vec<_> = all
                .iter()
                .map(|(kind, address, count, ns)| {
                    let access = Access { kind: Kind::ALL[*kind], address: *address };
                    (access, Accessed { count: *count, ns: *ns, visits: 0 })
                })
                .collect();
            let counts = accesses.iter().map(|(_, of)| of.count).sum::<u64>();
            let groups = groups(accesses);
            prop_assert_eq!(groups.iter().map(|group| group.accessed.count).sum::<u64>(), counts);
            prop_assert!(groups.windows(2).all(|two| two[0].accessed.ns >= two[1].accessed.ns));
            prop_assert!(groups.iter().all(|group| group.range.is_none_or(|(a, b)| a <= b)));
        }
    }
}
