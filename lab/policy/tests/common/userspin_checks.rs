// SPDX-License-Identifier: MIT OR Apache-2.0
//! What samples of instruction pointers show (policy/userspin.h).

use super::{any_u32, property, Api};
use proptest::prelude::*;
use unspin_policy::userspin::{Params, Sample, State, Verdict};

const NO: u32 = 0;
const LOOP: u32 = 1;
const STILL_LOOP: u32 = 2;

fn sample(address: u64, registers: u64, user: u8) -> Sample {
    Sample { address, registers, user, ..Sample::default() }
}

fn judge(api: &Api, state: &State, params: &Params) -> Verdict {
    let mut verdict = Verdict::default();
    unsafe { (api.userspin_judge)(state, params, &mut verdict) };
    verdict
}

fn judged(api: &Api, samples: &[Sample], params: &Params) -> Verdict {
    let mut state = State::default();
    unsafe { (api.userspin_init)(&mut state) };
    for sample in samples {
        unsafe { (api.userspin_add)(&mut state, sample) };
    }
    judge(api, &state, params)
}

fn kind(api: &Api, samples: &[Sample]) -> u32 {
    judged(api, samples, &Params::default()).kind
}

/// Few places, so that many samples meet; ends of the address space, too.
fn samples(max: usize) -> impl Strategy<Value = Vec<Sample>> {
    let near = |base: u64| (0..300u64).prop_map(move |d| base.wrapping_add(d).wrapping_sub(100));
    let address = prop_oneof![near(0x7000), near(0x7100), near(0), any::<u64>()];
    let one =
        (address, 0..4u64, 0..3u8).prop_map(|(a, registers, user)| sample(a, registers, user));
    prop::collection::vec(one, 0..max)
}

fn sane_params() -> impl Strategy<Value = Params> {
    (1..=16u32, any::<u32>(), any::<u32>(), 1..=256u32).prop_map(|(samples, a, b, range_bytes)| {
        Params { samples, threshold: 1 + a % samples, still: 1 + b % samples, range_bytes }
    })
}

/// The header's words again, over numbers that cannot overflow.
fn oracle(samples: &[Sample], params: &Params) -> Verdict {
    let count = params.samples as usize;
    if samples.len() < count {
        return Verdict::default();
    }
    let last: Vec<Sample> =
        samples[samples.len() - count..].iter().copied().filter(|s| s.user != 0).collect();
    let from = |low: u64| -> Vec<Sample> {
        let end = u128::from(low) + u128::from(params.range_bytes);
        let is_in = |s: &&Sample| s.address >= low && u128::from(s.address) < end;
        last.iter().filter(is_in).copied().collect()
    };
    let mut lows: Vec<u64> = last.iter().map(|s| s.address).collect();
    lows.sort_unstable();
    let most = lows.iter().map(|&low| from(low).len()).max().unwrap_or(0);
    let Some(&low) = lows.iter().find(|&&low| from(low).len() == most) else {
        return Verdict::default();
    };
    let found = from(low);
    let alike = |s: &Sample| found.iter().filter(|o| o.registers == s.registers).count();
    let known = found.iter().filter(|s| s.registers != 0);
    let still = known.map(alike).max().unwrap_or(0) >= params.still as usize;
    let kind = match (most >= params.threshold as usize, still) {
        (false, _) => NO,
        (true, false) => LOOP,
        (true, true) => STILL_LOOP,
    };
    let high = found.iter().map(|s| s.address).max().unwrap();
    Verdict { low, high, in_range: most as u32, kind }
}

pub fn userspin_worked_example(api: &Api) {
    let spins = [sample(0x7f00_1004, 1, 1); 4];
    let elsewhere: Vec<Sample> = (0..4).map(|i| sample(0x5500_0000 + 0x100 * i, 1, 1)).collect();
    let half = [&elsewhere[..], &spins[..]].concat();
    let verdict = judged(api, &half, &Params::default());
    let expected = Verdict { low: 0x7f00_1004, high: 0x7f00_1004, in_range: 4, kind: LOOP };
    assert_eq!(verdict, expected, "half of its time");
    assert_eq!(kind(api, &[&elsewhere[..], &elsewhere[..1], &spins[..3]].concat()), NO);
    // In 64 bytes, and one byte more.
    let spread = |last: u64| [0, 20, 40, last].map(|d| sample(0x7f00_1000 + d, 1, 1));
    assert_eq!(kind(api, &[&elsewhere[..], &spread(63)].concat()), LOOP);
    assert_eq!(kind(api, &[&elsewhere[..], &spread(64)].concat()), NO);
    // Seven with the same registers stand still, six do not.
    let loops = [sample(0x7f00_1004, 1, 1); 8];
    let mut moved = loops;
    assert_eq!(kind(api, &moved), STILL_LOOP);
    moved[3].registers = 2;
    assert_eq!(kind(api, &moved), STILL_LOOP);
    moved[6].registers = 3;
    assert_eq!(kind(api, &moved), LOOP);
    let unknown = loops.map(|s| Sample { registers: 0, ..s });
    assert_eq!(kind(api, &unknown), LOOP, "registers that nobody looked at");
}

/// The kernel's addresses are no loop of user space, however often the same.
pub fn userspin_is_of_user_space(api: &Api) {
    let kernel = [sample(0xffff_ffff_8100_0000, 1, 0); 8];
    assert_eq!(judged(api, &kernel, &Params::default()), Verdict::default());
    let mut mixed = kernel;
    for sample in &mut mixed[..3] {
        sample.user = 1;
    }
    assert_eq!(kind(api, &mixed), NO, "three of eight");
    mixed[3].user = 1;
    assert_eq!(judged(api, &mixed, &Params::default()).in_range, 4);
}

pub fn userspin_conforms(api: &Api) {
    property(3000, (samples(70), sane_params()), |(samples, params)| {
        assert_eq!(unsafe { (api.userspin_params_check)(&params) }, 0);
        let got = judged(api, &samples, &params);
        // The result is the oracle's, loop or not.
        assert_eq!(got, oracle(&samples, &params), "{params:?}");
    });
}

/// The last samples decide: earlier ones make no difference, and too few show nothing.
pub fn userspin_forgets(api: &Api) {
    property(500, (samples(80), samples(33), sane_params()), |(before, last, params)| {
        let all = [&before[..], &last[..]].concat();
        if last.len() >= params.samples as usize {
            assert_eq!(judged(api, &all, &params), judged(api, &last, &params));
        } else {
            assert_eq!(judged(api, &last, &params), Verdict::default());
        }
    });
    let mut state = State::default();
    for _ in 0..100 {
        unsafe { (api.userspin_add)(&mut state, &sample(1, 1, 1)) };
    }
    unsafe { (api.userspin_init)(&mut state) };
    let verdict = judge(api, &state, &Params::default());
    assert_eq!(verdict, Verdict::default(), "a vCPU that halted");
}

/// Any parameters and any state: a range that is one, and no access outside.
pub fn userspin_is_bounded(api: &Api) {
    let params = (any_u32(), any_u32(), any_u32(), any_u32());
    let state = (samples(17), any_u32(), any_u32());
    property(2000, (params, state), |(p, (samples, next, count))| {
        let params = Params { samples: p.0, threshold: p.1, still: p.2, range_bytes: p.3 };
        let mut state = State { next, count, ..State::default() };
        for (slot, sample) in state.samples.iter_mut().zip(&samples) {
            *slot = *sample;
        }
        let verdict = judge(api, &state, &params);
        assert!(verdict.low <= verdict.high && verdict.high - verdict.low < 256);
        assert!(verdict.in_range <= 16 && verdict.kind <= STILL_LOOP);
        assert!(verdict.kind == NO || verdict.in_range > 0);
        unsafe { (api.userspin_add)(&mut state, &sample(1, 1, 1)) };
        assert!(state.next < 16 && (1..=16).contains(&state.count));
    });
}

pub fn userspin_names_the_code(api: &Api) {
    let code = |low, high, kind| {
        let mut from = 0;
        let verdict = Verdict { low, high, in_range: 4, kind };
        let bytes = unsafe { (api.userspin_code)(&verdict, &mut from) };
        (from, bytes)
    };
    assert_eq!(code(0x1000, 0x1020, LOOP), (0xff0, 64));
    assert_eq!(code(0x1000, 0x1000, STILL_LOOP), (0xff0, 32));
    assert_eq!(code(0x1000, 0x1020, NO).1, 0);
    assert_eq!(code(5, 9, LOOP), (0, 25), "nothing is below 0");
    assert_eq!(code(0x1000, 0x1000 + 255, LOOP), (0xff0, 287));
    assert_eq!(code(0, u64::MAX, LOOP), (0, 288), "bounded");
    assert_eq!(code(9, 5, LOOP), (0, 25), "not the wrong way round");
}

pub fn userspin_finds_pause(api: &Api) {
    let has =
        |code: &[u8]| unsafe { (api.userspin_has_pause)(code.as_ptr(), code.len() as u32) != 0 };
    // libgomp: pause; add $1,%rax; cmp %rsi,%rax; je
    assert!(has(&[0xf3, 0x90, 0x48, 0x83, 0xc0, 0x01, 0x48, 0x39, 0xf0, 0x74]));
    assert!(has(&[0x00, 0xf3, 0x90]) && !has(&[0xf3]) && !has(&[]) && !has(&[0x90, 0xf3]));
    // A no-operation is none, rep stosb is none.
    assert!(!has(&[0x90, 0x90]) && !has(&[0xf3, 0xaa]));
    // tpause %eax, umwait %ecx; lfence and clwb look alike.
    assert!(has(&[0x66, 0x0f, 0xae, 0xf0]) && has(&[1, 0xf2, 0x0f, 0xae, 0xf1]));
    assert!(
        !has(&[0x0f, 0xae, 0xe8]) && !has(&[0x66, 0x0f, 0xae, 0x30]) && !has(&[0xf2, 0x0f, 0xae])
    );
    assert!(!has(&[0x66, 0x0f, 0xae, 0xe8]) && !has(&[0xf3, 0x0f, 0xae, 0xf0]));
    // tpause %r9d, and what ends before its operand does: the byte behind it is not looked at.
    let tpause = [0x66, 0x41, 0x0f, 0xae, 0xf1];
    assert!(has(&tpause) && !has(&tpause[..4]) && !has(&[0x66, 0x51, 0x0f, 0xae, 0xf1]));
    let ends = unsafe { (api.userspin_has_pause)(tpause.as_ptr(), 4) };
    assert_eq!(ends, 0, "bytes beyond the end");
    // Bytes of such instructions, so that they are drawn often.
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0xf3, 0x90, 0x66, 0xf2, 0x40, 0x4f, 0x0f, 0xae, 0xf0, 0xf7]),
    ];
    let input = (prop::collection::vec(byte, 0..100), any::<prop::sample::Index>());
    property(500, input, |(mut code, at)| {
        let plain = code.windows(2).any(|w| w == [0xf3, 0x90]);
        let is_timed = |w: &[u8]| w[..2] == [0x0f, 0xae] && w[2] & 0xf8 == 0xf0;
        let prefix = |byte: u8| matches!(byte, 0x66 | 0xf2);
        let timed = code.windows(4).any(|w| prefix(w[0]) && is_timed(&w[1..]))
            || code.windows(5).any(|w| prefix(w[0]) && w[1] >> 4 == 4 && is_timed(&w[2..]));
        assert_eq!(has(&code), plain || timed);
        let at = at.index(code.len() + 1);
        code.splice(at..at, [0xf3, 0x90]);
        assert!(has(&code));
    });
}

/// A register that moves is seen, wherever it is and however little it moves.
pub fn userspin_digests_differ(api: &Api) {
    let digest = |r: &[u64]| unsafe { (api.userspin_digest)(r.as_ptr(), r.len() as u32) };
    let input =
        (prop::collection::vec(any::<u64>(), 1..17), any::<prop::sample::Index>(), 0..64u32);
    property(2000, input, |(mut registers, at, bit)| {
        let before = digest(&registers);
        assert!(before != 0 && before == digest(&registers));
        let at = at.index(registers.len());
        registers[at] ^= 1 << bit;
        assert_ne!(digest(&registers), before);
    });
    // Two that change places, and a pointer and a counter that move together.
    assert_ne!(digest(&[1, 2]), digest(&[2, 1]));
    let moves: std::collections::BTreeSet<u64> =
        (0..10_000u64).map(|i| digest(&[7, 0x1000 + 8 * i, i, 9])).collect();
    assert_eq!(moves.len(), 10_000);
    assert_ne!(digest(&[]), 0);
}

pub fn userspin_params_are_judged(api: &Api) {
    assert_judged!(api.userspin_params_check, Params:
        samples: [0 => 1, 17 => 1, 16 => 0],
        threshold: [0 => 2, 9 => 2, 8 => 0],
        still: [0 => 3, 9 => 3, 8 => 0],
        range_bytes: [0 => 4, 257 => 4, 256 => 0]);
}
