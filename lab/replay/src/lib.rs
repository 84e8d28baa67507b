// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeats every decision in a trace of the module, with the same policies in user space. Each
//! result must be the same.
//!
//! A trace is text of the tracepoints `unspin:unspin_pick` and `unspin:unspin_epoch`
//! (docs/sysfs.md); other lines are ignored. [`schedule`] repeats the decisions of `unspin schedule`.

pub mod schedule;

use anyhow::{bail, Context};
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use unspin_policy::aple::{Epoch, Params, State};
use unspin_policy::hvs::{decide, Flags, Slot};

/// Size of a slot in a trace (struct hvs_slot).
const SLOT_BYTES: usize = 16;

/// Counts of the repeated decisions.
#[derive(Debug, Default, PartialEq)]
pub struct Tally {
    pub picks: u64,
    /// Successful directed yields, by the target's category (enum hvs_category).
    pub taken: BTreeMap<u8, u64>,
    pub epochs: u64,
    /// Epochs whose round started before the trace: only their inefficiency is checked.
    pub partly: u64,
    /// Descriptions of decisions with another result.
    pub different: Vec<String>,
}

/// Repeats the decisions in the lines of one recording, and adds them to `tally`. Returns an error
/// for a damaged line.
pub fn replay<'a>(lines: impl Iterator<Item = &'a str>, tally: &mut Tally) -> anyhow::Result<()> {
    let mut vms: HashMap<String, (u64, State)> = HashMap::new();
    for line in lines {
        if let Some((_, fields)) = line.split_once("unspin_pick: ") {
            tally.picks += 1;
            replay_pick(&Fields::parse(fields), tally).with_context(|| line.to_string())?;
        } else if let Some((_, fields)) = line.split_once("unspin_epoch: ") {
            tally.epochs += 1;
            replay_epoch(&Fields::parse(fields), &mut vms, tally)
                .with_context(|| line.to_string())?;
        }
    }
    Ok(())
}

/// `key=value` pairs of a tracepoint.
struct Fields<'a>(HashMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Self {
        Fields(text.split_whitespace().filter_map(|p| p.split_once('=')).collect())
    }

    fn text(&self, key: &str) -> anyhow::Result<&'a str> {
        self.0.get(key).copied().with_context(|| format!("the line has no {key}"))
    }

    fn number<T: FromStr>(&self, key: &str) -> anyhow::Result<T> {
        let text = self.text(key)?;
        text.parse().ok().with_context(|| format!("{key}={text} is not a valid number"))
    }

    fn hex(&self, key: &str) -> anyhow::Result<u64> {
        let text = self.text(key)?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .with_context(|| format!("{key}={text} is not hexadecimal"))
    }
}

fn replay_pick(f: &Fields, tally: &mut Tally) -> anyhow::Result<()> {
    let slots = slots(f)?;
    let ours = decide(&slots, f.number("caller")?, f.hex("excluded")?, Flags(f.number("flags")?));
    let theirs: i64 = f.number("pick")?;
    if let Ok(target) = usize::try_from(theirs) {
        let Some(slot) = slots.get(target) else { bail!("pick={target} of {} slots", slots.len()) };
        if f.number::<i64>("outcome")? > 0 {
            *tally.taken.entry(slot.category).or_default() += 1;
        }
    }
    let ours = i64::from(ours.number());
    if ours != theirs {
        tally.different.push(format!("pick of VM {}: {theirs}, here {ours}", f.text("vm")?));
    }
    Ok(())
}

fn slot(b: &[u8; SLOT_BYTES]) -> Slot {
    Slot {
        preempted_at: u64::from_le_bytes(b[..8].try_into().expect("eight bytes")),
        category: b[8],
        ready: b[9],
        yielded_mark: b[10],
        running: b[11],
        cpu: u16::from_le_bytes([b[12], b[13]]),
        user_mode: b[14],
        shared: b[15],
    }
}

/// The slots in the line. The line has their number.
fn slots(f: &Fields) -> anyhow::Result<Vec<Slot>> {
    let slots = hex_slots(f.0.get("slots").copied().unwrap_or(""))?;
    let count: usize = f.number("count")?;
    if slots.len() != count {
        bail!("count={count}, but the line holds {} slots", slots.len());
    }
    Ok(slots)
}

/// Slots by their bytes in hexadecimal.
fn hex_slots(hex: &str) -> anyhow::Result<Vec<Slot>> {
    if !hex.is_ascii() || hex.len() % (2 * SLOT_BYTES) != 0 {
        bail!("slots of {} digits", hex.len());
    }
    let bytes = (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16))
        .collect::<Result<Vec<u8>, _>>()
        .context("slots are not hexadecimal")?;
    let of = |bytes: &[u8]| slot(bytes.try_into().expect("a whole slot"));
    Ok(bytes.chunks_exact(SLOT_BYTES).map(of).collect())
}

fn replay_epoch(
    f: &Fields,
    vms: &mut HashMap<String, (u64, State)>,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let spent = Epoch {
        ple_exits: f.number("exits")?,
        spin_cycles: f.number("spin")?,
        switch_cycles: f.number("switch")?,
        cpu_cycles: f.number("cpu")?,
    };
    let (vm, epoch): (&str, u64) = (f.text("vm")?, f.number("epoch")?);
    let (ours, theirs) = (spent.inefficiency_ppm(), f.number::<u64>("ppm")?);
    if ours != theirs {
        tally.different.push(format!("VM {vm}, epoch {epoch}: {theirs} ppm, here {ours}"));
    }
    if f.number::<u32>("adapts")? == 0 {
        return Ok(());
    }
    let params = Params {
        window_init_cycles: f.number("init")?,
        window_min_cycles: f.number("min")?,
        window_max_cycles: f.number("max")?,
        delta_cycles: f.number("delta")?,
        epoch_ple_exits: f.number("epoch_exits")?,
        delta_max_cycles: f.number("delta_max")?,
        epoch_min_us: 0, // when an epoch ends was decided
    };
    let key = format!("{vm} {}", f.text("gen")?);
    let phase: u32 = f.number("phase")?;
    // A round's first epoch has all parameters; the others follow from it.
    let known =
        vms.remove(&key).filter(|(last, s)| last.checked_add(1) == Some(epoch) && s.phase == phase);
    let window_cycles = f.number("window")?;
    let mut state = match (phase, known) {
        (0, _) => State {
            desired_cycles: f.number("desired")?,
            window_cycles,
            step_cycles: f.number("step")?,
            moved: f.number("moved")?,
            ..State::default()
        },
        // New bounds move the window at once, within a round, too.
        (_, Some((_, state))) => State { window_cycles, ..state },
        (_, None) => {
            tally.partly += 1;
            return Ok(());
        }
    };
    let next = state.epoch_end(&params, &spent);
    let ours = next.max(params.window_min_cycles).min(params.window_max_cycles);
    let theirs: u32 = f.number("next")?;
    if ours != theirs {
        tally.different.push(format!("VM {vm}, epoch {epoch}: next window {theirs}, here {ours}"));
    }
    vms.insert(key, (epoch, state));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that the module would write, computed with the policies themselves.
    fn epoch_lines(n: u64) -> Vec<String> {
        epoch_lines_with(n, |_| Params::default().window_max_cycles)
    }

    /// The same with this upper bound in each epoch. As in the module, another one applies at once.
    fn epoch_lines_with(n: u64, window_max: fn(u64) -> u32) -> Vec<String> {
        let mut params = Params::default();
        let mut state = State::new(&params);
        (1..=n)
            .map(|e| {
                let max = window_max(e);
                params.window_max_cycles = max;
                state.window_cycles = state.window_cycles.min(max);
                let before = state;
                let spent = Epoch {
                    ple_exits: 50,
                    spin_cycles: 50 * u64::from(state.window_cycles),
                    switch_cycles: 700_000 * (e % 4),
                    cpu_cycles: 20_000_000,
                };
                let next = state.epoch_end(&params, &spent);
                format!(
                    "CPU 0/KVM-41 [000] ..... 12.5: unspin_epoch: vm=41-0 gen=3 epoch={e} adapts=1 phase={} window={} desired={} step={} moved={} exits=50 spin={} switch={} cpu=20000000 ppm={} next={next} init=8192 min=4096 max={max} delta=1024 delta_max=8192 epoch_exits=1000",
                    before.phase, before.window_cycles, before.desired_cycles, before.step_cycles, before.moved, spent.spin_cycles, spent.switch_cycles, spent.inefficiency_ppm()
                )
            })
            .collect()
    }

    fn tally(lines: &[String]) -> Tally {
        let mut t = Tally::default();
        replay(lines.iter().map(String::as_str), &mut t).unwrap();
        t
    }

    #[test]
    fn epochs_come_out_the_same() {
        let lines = epoch_lines(30);
        assert_eq!(tally(&lines), Tally { epochs: 30, ..Tally::default() });
        let late = tally(&lines[1..]);
        assert_eq!((late.partly, late.different.len()), (2, 0), "a round begun before the trace");
        let gap = [&lines[..4], &lines[5..]].concat();
        assert_eq!(tally(&gap).different.len(), 0, "a lost line is no difference");
    }

    #[test]
    fn bounds_that_are_set_within_a_round_come_out_the_same() {
        // Epoch 8 is the best of its round, and the bound that moved its window is gone in epoch 9.
        let lines = epoch_lines_with(30, |epoch| if epoch == 8 { 9000 } else { 32768 });
        assert_eq!(tally(&lines), Tally { epochs: 30, ..Tally::default() });
    }

    #[test]
    fn the_last_number_an_epoch_can_have_is_no_trouble() {
        let mut lines = epoch_lines(2);
        lines[0] = lines[0].replace("epoch=1 ", "epoch=18446744073709551615 ");
        let late = tally(&lines);
        assert_eq!((late.partly, late.different.len()), (1, 0));
    }

    #[test]
    fn a_changed_epoch_is_found() {
        let mut lines = epoch_lines(6);
        let next = lines[2].split("next=").nth(1).unwrap().split(' ').next().unwrap().to_string();
        lines[2] = lines[2].replace(&format!("next={next}"), "next=5000");
        lines[4] = lines[4].replace("ppm=", "ppm=1");
        let found = tally(&lines).different;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("next window 5000"));
    }

    /// A slot's bytes: its time, its category, and the last two, `user_mode` and an unused one.
    fn slot(at: u8, category: u8, user_mode: u8) -> String {
        format!("{at:02x}00000000000000{category:02x}0100000000{user_mode:02x}00")
    }

    fn line(pick: i64, slots: &[String]) -> String {
        let (count, slots) = (slots.len(), slots.concat());
        format!("x: unspin_pick: vm=41-0 gen=3 caller=0 flags=0 excluded=0x0 pick={pick} outcome=1 count={count} slots={slots}")
    }

    /// A line in the format of older modules, in which the last two bytes are 0.
    fn pick_line(pick: i64) -> String {
        // vCPU 2 is the resource-waiter preempted last.
        line(pick, &[slot(0, 0, 0), slot(5, 1, 0), slot(9, 1, 0), slot(1, 2, 0)])
    }

    #[test]
    fn picks_come_out_the_same_or_are_found() {
        let taken = BTreeMap::from([(1, 1)]);
        assert_eq!(tally(&[pick_line(2)]), Tally { picks: 1, taken, ..Tally::default() });
        let failed = pick_line(2).replace("outcome=1", "outcome=0");
        assert_eq!(tally(&[failed]), Tally { picks: 1, ..Tally::default() });
        assert_eq!(tally(&[pick_line(1)]).different, ["pick of VM 41-0: 1, here 2"]);
    }

    #[test]
    fn slots_carry_who_was_woken_and_who_was_in_user_mode() {
        // With HVS_WOKEN_LIST and HVS_USER_MODE_LAST.
        let line = |pick, slots: &[String]| line(pick, slots).replace("flags=0", "flags=192");
        let slots = [slot(0, 0, 0), slot(9, 1, 1), slot(1, 2, 0), slot(3, 4, 0)];
        assert_eq!(tally(&[line(3, &slots)]).different.len(), 0, "woken, before the lock waiter");
        assert_eq!(tally(&[line(2, &slots[..3])]).different.len(), 0, "user mode comes last");
        assert_eq!(tally(&[line(1, &slots[..3])]).different, ["pick of VM 41-0: 1, here 2"]);
    }

    #[test]
    fn damaged_lines_are_errors() {
        let mut t = Tally::default();
        let cut = pick_line(2);
        assert!(replay([&cut[..cut.len() - 3]].into_iter(), &mut t).is_err());
        assert!(replay(["unspin_epoch: vm=1-0 exits=x"].into_iter(), &mut t).is_err());
        assert!(replay([pick_line(4).as_str()].into_iter(), &mut t).is_err());
    }
}
