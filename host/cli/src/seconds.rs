// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a command measures, as an option gives it.

use std::time::Duration;

const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// Parses an option's number of seconds, 0.1 to 3600.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if !SECONDS.contains(&seconds) {
        return Err(format!("allowed: {} to {}", SECONDS.start(), SECONDS.end()));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_within_bounds() {
        assert_eq!(seconds("0.1").unwrap(), Duration::from_millis(100));
        assert_eq!(seconds("3600").unwrap(), Duration::from_secs(3600));
        for wrong in ["0", "-1", "nan", "inf", "3600.1", "5s", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
