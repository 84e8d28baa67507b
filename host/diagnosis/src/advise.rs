// SPDX-License-Identifier: MIT OR Apache-2.0
//! All advice for a VM.

use crate::advice::{of_vcpus, percent, Advice, Setting, WORTH_IT};
use crate::idle;
use crate::judge::{Did, Loss};
use crate::right_size::right_size;

/// All advice as lines, largest possible gain first.
pub fn advice(did: &Did, losses: &[Loss], setting: &Setting) -> Vec<Advice> {
    let mut all = of_vcpus(did, losses, setting);
    all.extend(idle::advice(did, setting));
    all.extend(for_size(did));
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.into_iter().map(|(_, advice)| advice).collect()
}

/// Fewer vCPUs, if the VM would lose nothing by that.
fn for_size(did: &Did) -> Option<(f64, Advice)> {
    /// A shorter measurement may have missed its busy time.
    const LONG_S: f64 = 60.0;
    let size = right_size(did)?;
    let (vcpus, watched) = (size.vcpus, size.watched_s);
    let longer = match watched < LONG_S {
        true => "; look at a busy hour before: --seconds 3600",
        false => "",
    };
    let many = if vcpus == 1 { "vCPU" } else { "vCPUs" };
    let advice = Advice {
        what: format!("give it {vcpus} {many} instead of {}", size.has),
        expected: "less than 1 % more waiting, fewer vCPUs to wake and to place".into(),
        evidence: format!(
            "in {watched:.0} s its vCPUs wanted {:.1} CPUs on average, and more than {vcpus} of them \
             one for {} of the time{longer}",
            size.mean,
            percent(size.more_share)
        ),
        sure: size.sure,
    };
    Some((WORTH_IT, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::losses;
    use crate::judge::tests::did;
    use crate::State;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn told(did: &Did) -> Vec<Advice> {
        advice(did, &losses(did), &Setting::default())
    }

    #[test]
    fn fewer_vcpus_are_advised_where_they_are_enough() {
        let mut did = Did { vcpus: 8, window_ns: 20 * S, ..Did::default() };
        did.times[State::Guest] = 20 * S;
        did.times[State::Halted] = 140 * S;
        did.wanting_ns = vec![8 * S, 8 * S, 2 * S, 2 * S];
        did.wanting_ns.resize(65, 0);
        let all = told(&did);
        let text = format!("{}: {}", all[0].what, all[0].evidence);
        for words in ["give it 3 vCPUs instead of 8", "more than 3", "20 s", "0.9 CPUs"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        did.window_ns = 5 * S;
        assert!(told(&did).is_empty());
    }

    #[test]
    fn threads_that_spin_are_named() {
        let mut did = Did { vcpus: 1, window_ns: S, user_spin_share: Some(0.5), ..Did::default() };
        did.times[State::Guest] = S;
        let text: String = told(&did).into_iter().map(|advice| advice.what + "\n").collect();
        assert!(text.contains("OMP_WAIT_POLICY=passive") && text.contains("vcrd-both"), "{text}");
        did.user_spin_share = None;
        let text: String = told(&did).into_iter().map(|advice| advice.what + "\n").collect();
        assert!(!text.contains("OMP_WAIT_POLICY"), "{text}");
    }

    proptest! {
        #[test]
        fn advice_has_figures(did in did()) {
            for advice in told(&did) {
                prop_assert!(advice.evidence.contains('%') || advice.evidence.contains("CPUs"));
            }
        }
    }
}
