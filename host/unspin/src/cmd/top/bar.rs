// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bar whose parts are causes. Each part has a letter in addition to its colour, for people who see
//! no colours.

use ratatui::style::Color;
use unspin_diagnosis::Cause;

pub fn letter(cause: Cause) -> char {
    match cause {
        Cause::Contention => 'C',
        Cause::SpinSwitch => 'S',
        Cause::IdleSwitch => 'I',
        Cause::Ipi => 'P',
        Cause::UserSpin => 'U',
        Cause::Cache => 'H',
        Cause::Device => 'D',
        Cause::Msr => 'M',
        Cause::Monitor => 'O',
    }
}

pub fn color(cause: Cause) -> Color {
    match cause {
        Cause::Contention => Color::Red,
        Cause::SpinSwitch => Color::Yellow,
        Cause::IdleSwitch => Color::Blue,
        Cause::Ipi => Color::Magenta,
        Cause::UserSpin => Color::Cyan,
        Cause::Cache => Color::Green,
        Cause::Device => Color::LightRed,
        Cause::Msr => Color::LightMagenta,
        Cause::Monitor => Color::LightBlue,
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
        let letters: BTreeSet<char> = Cause::ALL.iter().map(|cause| letter(*cause)).collect();
        assert_eq!(letters.len(), Cause::ALL.len());
        let is_in_name = |cause: &Cause| cause.name().contains(letter(*cause).to_ascii_lowercase());
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
