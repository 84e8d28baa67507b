// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of the papers: in `papers/`, in ids of claims, in names of profiles.

/// Shan, Ding and Gehani, TPDS 2017.
pub const APPLES: &str = "apples";
/// Ouyang and Lange, VEE 2013.
pub const PMTLOCK: &str = "pmtlock";
/// Kashyap, Min and Kim, APSys 2015.
pub const OTICKET: &str = "oticket";
/// Weng, Liu, Yu and Li, HPDC 2011.
pub const ASMAN: &str = "asman";
/// J. Shan, New Jersey Institute of Technology 2018.
pub const DISSERTATION: &str = "dissertation";

/// All keys, in the order of display.
pub const KEYS: [&str; 5] = [APPLES, PMTLOCK, OTICKET, ASMAN, DISSERTATION];
