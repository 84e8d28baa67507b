// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling groups of the fair scheduler: one cgroup per VM, as libvirt creates them.
//!
//! After `calc_group_shares()` of `kernel/sched/fair.c`: a group's shares are divided among the
//! pCPUs by its load there. So a vCPU of a VM with 16 busy vCPUs competes with a sixteenth of the
//! VM's shares, and one whose siblings sleep with nearly all of them. Load is runnable time that
//! fades by half in 32 ms (per-entity load tracking, Linux 3.8 and later). With a smaller weight,
//! what CFS counts in virtual time and does not divide by the weight, a sleeper's credit, is worth
//! less real time. What it does divide, the wake-up granularity, is more virtual time. So a vCPU
//! that wakes waits for the next tick, where a task without a group would run at once.
//!
//! Groups within groups (a vCPU's within its VM's) are flattened; with one vCPU of a VM on a pCPU
//! that is the same. The sum over siblings is always up to date, unless `Host::group_load_lags` is
//! set. Then it is what each sibling last published, as in Linux 3.8 to 4.2 (`tg_load_contrib`). A
//! running vCPU publishes at ticks. One that falls asleep or wakes publishes only if its load has
//! changed by more than an eighth, and at most once per millisecond. The load of a sleeping one
//! does not fade until its pCPU balances (`update_blocked_averages()`), which a pCPU that is never
//! idle does every 64 ms per pCPU of its last-level cache (`balance`).

use crate::engine::{Table, VcpuId};

/// One, as a fraction of time.
const ONE: u64 = 1 << 20;
/// Length of a step of the decay, ns (the kernel's 1024 µs, counted in ns by shifts).
const PERIOD_NS: u64 = 1 << 20;
/// Periods in which load decays by half.
const HALF_LIFE: u64 = 32;
/// The smallest weight that Linux gives a group.
pub const WEIGHT_MIN: u64 = 2;

/// 0.5^(i/32) in 32 bits, i = 0..=32.
const FADE_Q32: [u64; 33] = [
    0x1_0000_0000,
    0xfa83_b2db,
    0xf525_7d15,
    0xefe4_b99c,
    0xeac0_c6e8,
    0xe5b9_06e7,
    0xe0cc_deec,
    0xdbfb_b798,
    0xd744_fccb,
    0xd2a8_1d92,
    0xce24_8c15,
    0xc9b9_bd86,
    0xc567_2a11,
    0xc12c_4cca,
    0xbd08_a39f,
    0xb8fb_af47,
    0xb504_f334,
    0xb123_f582,
    0xad58_3eea,
    0xa9a1_5ab5,
    0xa5fe_d6aa,
    0xa270_4303,
    0x9ef5_3261,
    0x9b8d_39ba,
    0x9837_f052,
    0x94f4_efa9,
    0x91c3_d374,
    0x8ea4_398b,
    0x8b95_c1e4,
    0x8898_0e81,
    0x85aa_c368,
    0x82cd_8699,
    0x8000_0000,
];

/// The remaining share of a load after `ns`, in 32 bits: whole periods from the table, linear in
/// between.
fn fade_q32(ns: u64) -> u64 {
    let periods = ns / PERIOD_NS;
    if periods >= 64 * HALF_LIFE {
        return 0;
    }
    let at = (periods % HALF_LIFE) as usize;
    let (from, to) = (FADE_Q32[at], FADE_Q32[at + 1]);
    let between = from - (((from - to) * (ns % PERIOD_NS)) >> 20);
    between >> (periods / HALF_LIFE)
}

fn faded(value: u64, fade_q32: u64) -> u64 {
    ((u128::from(value) * u128::from(fade_q32)) >> 32) as u64
}

/// A sum that follows `target`, with a half-life of 32 ms.
fn follow(value: u64, target: u64, fade_q32: u64) -> u64 {
    if value > target {
        target + faded(value - target, fade_q32)
    } else {
        target - faded(target - value, fade_q32)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Member {
    group: u32,
    /// Its share within its VM; 1024 unless the VM's vCPUs have weights.
    share: u64,
    runnable: bool,
    /// The share of time in which it was runnable, in units of [`ONE`], with decay.
    load: u64,
    since_ns: u64,
    /// With lagging loads: its contribution to the group, and the period of its last possible
    /// change.
    published: u64,
    period: u64,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    shares: u64,
    /// Shares of its runnable members.
    runnable: u64,
    /// Sum of its members' loads by their shares, in units of [`ONE`].
    load: u64,
    since_ns: u64,
}

/// The groups of all VMs.
#[derive(Debug, Default)]
pub struct Groups {
    groups: Vec<Group>,
    members: Table<VcpuId, Member>,
    /// The sums contain the last published loads.
    lags: bool,
}

impl Groups {
    /// No VM yet. `lags`: sums as in Linux 3.8 to 4.2.
    pub fn new(lags: bool) -> Groups {
        Groups { lags, ..Groups::default() }
    }

    /// A VM with those shares (1024: like others) and `count` vCPUs, all asleep.
    pub fn add_vm(&mut self, shares: u64, count: u32) {
        let group = self.groups.len() as u32;
        self.groups.push(Group { shares, runnable: 0, load: 0, since_ns: 0 });
        let member = Member { group, share: 1024, ..Member::default() };
        self.members.extend((0..count).map(|_| member));
    }

    /// `v` becomes runnable, or stops being it.
    pub fn set_runnable(&mut self, v: VcpuId, runnable: bool, now_ns: u64) {
        self.update(v, now_ns);
        if self.lags && now_ns / PERIOD_NS > self.members[v].period {
            self.publish(v, now_ns, false);
        }
        let member = &mut self.members[v];
        if member.runnable == runnable {
            return;
        }
        member.runnable = runnable;
        let group = &mut self.groups[member.group as usize];
        if runnable {
            group.runnable += member.share;
        } else {
            group.runnable -= member.share;
        }
    }

    /// Sets the share of `v` within its VM (at least 2).
    pub fn set_share(&mut self, v: VcpuId, share: u64, now_ns: u64) {
        self.update(v, now_ns);
        let member = &mut self.members[v];
        let group = &mut self.groups[member.group as usize];
        let share = share.max(WEIGHT_MIN);
        if !self.lags {
            let load = group.load + share * member.load;
            group.load = load.saturating_sub(member.share * member.load);
        }
        if member.runnable {
            group.runnable = group.runnable + share - member.share;
        }
        member.share = share;
    }

    /// Sets the shares of a VM, by its number (1024: default).
    pub fn set_shares(&mut self, vm: usize, shares: u64) {
        self.groups[vm].shares = shares;
    }

    /// The weight with which `v`, runnable, competes on its pCPU.
    pub fn weight(&mut self, v: VcpuId, now_ns: u64) -> u64 {
        self.update(v, now_ns);
        let member = &self.members[v];
        let group = &self.groups[member.group as usize];
        let own = if self.lags { member.published } else { member.share * member.load };
        let others = group.load.saturating_sub(own) / ONE;
        let weight = group.shares * member.share / (member.share + others);
        weight.clamp(WEIGHT_MIN, group.shares.max(WEIGHT_MIN))
    }

    /// `v` runs when its pCPU ticks, or sleeps when its pCPU balances: its present load counts.
    pub fn refresh(&mut self, v: VcpuId, now_ns: u64) {
        if self.lags {
            self.update(v, now_ns);
            self.publish(v, now_ns, true);
        }
    }

    /// Replaces the published load of `v` by its present one (`__update_cfs_rq_tg_load_contrib()`).
    fn publish(&mut self, v: VcpuId, now_ns: u64, force: bool) {
        let member = &mut self.members[v];
        let group = &mut self.groups[member.group as usize];
        let load = member.share * member.load;
        if force || load.abs_diff(member.published) > member.published / 8 {
            group.load = group.load + load - member.published;
            member.published = load;
        }
        member.period = now_ns / PERIOD_NS;
    }

    fn update(&mut self, v: VcpuId, now_ns: u64) {
        let member = &mut self.members[v];
        let group = &mut self.groups[member.group as usize];
        if !self.lags && now_ns > group.since_ns {
            let fade = fade_q32(now_ns - group.since_ns);
            group.load = follow(group.load, group.runnable * ONE, fade);
            group.since_ns = now_ns;
        }
        if now_ns > member.since_ns {
            let fade = fade_q32(now_ns - member.since_ns);
            member.load = follow(member.load, if member.runnable { ONE } else { 0 }, fade);
            member.since_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rng;

    const MS: u64 = 1_000_000;

    fn groups(vcpus: u32) -> Groups {
        let mut groups = Groups::default();
        groups.add_vm(1024, vcpus);
        groups
    }

    #[test]
    fn the_table_is_powers_of_one_half() {
        for (i, &fade) in FADE_Q32.iter().enumerate() {
            let exact = 0.5f64.powf(i as f64 / 32.0) * f64::powi(2.0, 32);
            assert!((fade as f64 - exact).abs() <= 1.0, "{i}: {fade:#x}, not {exact}");
        }
        assert_eq!(fade_q32(32 * PERIOD_NS), 1 << 31);
        assert!(fade_q32(u64::MAX) == 0 && fade_q32(0) == 1 << 32);
    }

    #[test]
    fn busy_siblings_divide_the_shares_and_a_lone_one_has_them_all() {
        let mut g = groups(16);
        (0..16).for_each(|v| g.set_runnable(VcpuId(v), true, 0));
        assert_eq!(g.weight(VcpuId(0), 1000 * MS), 64);
        (1..16).for_each(|v| g.set_runnable(VcpuId(v), false, 1000 * MS));
        // After one half-life, half of the siblings' load has decayed.
        let half = g.weight(VcpuId(0), 1000 * MS + 32 * PERIOD_NS);
        assert_eq!(half, 1024 * 1024 / (1024 + 15 * 512));
        assert_eq!(g.weight(VcpuId(0), 3000 * MS), 1024);
    }

    #[test]
    fn shares_within_a_vm_divide_its_own() {
        let mut g = groups(2);
        (0..2).for_each(|v| g.set_runnable(VcpuId(v), true, 0));
        g.set_share(VcpuId(1), 3 * 1024, 2000 * MS);
        assert_eq!([0, 1].map(|v| g.weight(VcpuId(v), 2000 * MS)), [256, 768]);
    }

    /// Siblings that fell asleep keep their weight until their pCPUs balance. A running vCPU's load
    /// is updated at its tick.
    #[test]
    fn a_load_that_lags_is_known_when_it_is_published() {
        let mut g = Groups::new(true);
        g.add_vm(1024, 16);
        (0..16).for_each(|v| g.set_runnable(VcpuId(v), true, 0));
        assert_eq!(g.weight(VcpuId(0), 1000 * MS), 1024, "nobody has ticked yet");
        (0..16).for_each(|v| g.refresh(VcpuId(v), 1000 * MS));
        assert_eq!(g.weight(VcpuId(0), 1000 * MS), 64);
        (1..16).for_each(|v| g.set_runnable(VcpuId(v), false, 1001 * MS));
        assert_eq!(g.weight(VcpuId(0), 1200 * MS), 64);
        (1..9).for_each(|v| g.refresh(VcpuId(v), 3000 * MS));
        assert_eq!(g.weight(VcpuId(0), 3000 * MS), 1024 / 8);
        // A millisecond of running changes the load by less than 1/8.
        g.set_runnable(VcpuId(9), true, 1002 * MS + MS / 2);
        assert_eq!(g.weight(VcpuId(0), 3000 * MS), 1024 / 8);
        g.set_runnable(VcpuId(10), true, 3000 * MS);
        assert_eq!(g.weight(VcpuId(0), 3000 * MS), 1024 / 7, "woken after two seconds of sleep");
    }

    /// The group's sum equals that of its members, whatever they do and whenever they are read.
    #[test]
    fn the_sum_is_the_members() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 0);
            let mut g = groups(5);
            let mut now = 0;
            for _ in 0..400 {
                now += u64::from(rng.next() as u32 % 4_000_000);
                let v = rng.next() as u32 % 5;
                match rng.next() % 4 {
                    0 => g.set_share(VcpuId(v), 2 + rng.next() % 5000, now),
                    1 => drop(g.weight(VcpuId(v), now)),
                    _ => g.set_runnable(VcpuId(v), rng.next() % 2 == 0, now),
                }
                assert!((WEIGHT_MIN..=1024).contains(&g.weight(VcpuId(v), now)));
            }
            (0..5).for_each(|v| g.update(VcpuId(v), now));
            let sum: u64 = g.members.iter().map(|m| m.share * m.load).sum();
            let group = g.groups[0].load;
            // Linear interpolation, different times, and rounding.
            assert!(sum.abs_diff(group) <= sum / 100 + 64 * ONE, "{sum} and {group}");
            let runnable: u64 = g.members.iter().filter(|m| m.runnable).map(|m| m.share).sum();
            assert_eq!(runnable, g.groups[0].runnable);
        }
    }

    #[test]
    fn the_sum_is_what_members_published() {
        let mut rng = Rng::new(7, 0);
        let mut g = Groups::new(true);
        g.add_vm(1024, 5);
        let mut now = 0;
        for _ in 0..2000 {
            now += u64::from(rng.next() as u32 % 4_000_000);
            let v = rng.next() as u32 % 5;
            match rng.next() % 5 {
                0 => g.set_share(VcpuId(v), 2 + rng.next() % 5000, now),
                1 => g.refresh(VcpuId(v), now),
                _ => g.set_runnable(VcpuId(v), rng.next() % 2 == 0, now),
            }
            assert!((WEIGHT_MIN..=1024).contains(&g.weight(VcpuId(v), now)));
            let sum: u64 = g.members.iter().map(|m| m.published).sum();
            assert_eq!(sum, g.groups[0].load);
        }
    }
}
