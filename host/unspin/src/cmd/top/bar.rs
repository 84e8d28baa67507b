// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bar whose parts are causes. Each part has a letter in addition to its colour, for people who see
//! no colours.

use ratatui::style::Color;
use unspin_diagnosis::Cause;

pub fn look(cause: Cause) -> (char, Color) {
    match cause {
        Cause::Contention => ('C', Color::Red),
        Cause::SpinSwitch => ('S', Color::Yellow),
        Cause::IdleSwitch => ('I', Color::Blue),
        Cause::Ipi => ('P', Color::Magenta),
        Cause::UserSpin => ('U', Color::Cyan),
        Cause::Cache => ('H', Color::Green),
        Cause::Device => ('D', Color::LightRed),
        Cause::Msr => ('M', Color::LightMagenta),
        Cause::Monitor => ('O', Color::LightBlue),
    }
}

/// How many of `width` cells each cause takes; `width` is the whole wall time. Parts end at the rounded
/// sum of shares so far, so the total is exact to half a cell.
pub fn cells(lost: &[Option<f64>], width: u16) -> Vec<(Cause, u16)> {
    let (mut sum, mut end) = (0.0, 0);
    let part = |(cause, lost): (&Cause, &Option<f64>)| {
        sum += lost.unwrap_or(0.0);
        let now = (sum.clamp(0.0, 1.0) * f64::from(width)).round() as u16;
        let cells = now - end;
        end = now;
        (*cause, cells)
    };
    Cause::ALL.iter().zip(lost).map(part).filter(|(_, cells)| *cells > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn causes_are_told_apart() {
        let letters: BTreeSet<char> = Cause::ALL.iter().map(|cause| look(*cause).0).collect();
        assert_eq!(letters.len(), Cause::ALL.len());
        let is_in_name = |cause: &Cause| cause.name().contains(look(*cause).0.to_ascii_lowercase());
        assert!(Cause::ALL.iter().all(is_in_name));
    }

    proptest! {
        #[test]
        fn a_bar_is_as_long_as_what_is_lost(
            lost in prop::collection::vec(prop::option::of(0.0..0.3), Cause::ALL.len()),
            width in 0..300u16,
        ) {
            let sum: f64 = lost.iter().flatten().sum();
            let cells = cells(&lost, width);
            let length: u16 = cells.iter().map(|(_, cells)| cells).sum();
            let wanted = sum.min(1.0) * f64::from(width);
            prop_assert!((f64::from(length) - wanted).abs() <= 0.5 + 1e-9);
            prop_assert!(cells.iter().all(|(cause, _)| lost[*cause as usize].is_some()));
        }
    }
}
