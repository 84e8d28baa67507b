// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of the command line.

use crate::error::Error;
use crate::shared::{Gang, PCPUS_MAX, VCPUS_MAX, VMS_MAX};

#[derive(Debug, PartialEq)]
pub struct Arguments {
    pub gang: Gang,
    /// Whether no VM gets more than its weight's share.
    pub capped: bool,
    pub slot_us: u32,
    pub pcpus: u32,
    pub seed: u64,
    pub vms: Vec<Vm>,
}

#[derive(Debug, PartialEq)]
pub struct Vm {
    pub weight: u32,
    /// Whether its vCPUs always run together, in the mode for named VMs.
    pub named: bool,
    pub tids: Vec<u32>,
}

impl Arguments {
    pub fn parse(words: &[String]) -> Result<Arguments, Error> {
        let (counts, vms) = words.split_at_checked(5).ok_or_else(|| usage("words are missing"))?;
        let arguments = Arguments {
            gang: gang(&counts[0])?,
            capped: number(&counts[1], 0, 1)? == 1,
            slot_us: number(&counts[2], 1, 1_000_000)? as u32,
            pcpus: number(&counts[3], 1, PCPUS_MAX as u64)? as u32,
            seed: number(&counts[4], 0, u64::MAX)?,
            vms: vms.iter().map(|word| vm(word)).collect::<Result<_, _>>()?,
        };
        let vcpus: usize = arguments.vms.iter().map(|vm| vm.tids.len()).sum();
        if vms.is_empty() || vms.len() > VMS_MAX || vcpus > VCPUS_MAX {
            let text = format!("{} VMs with {vcpus} vCPUs", vms.len());
            return Err(usage(&format!("{text}; it schedules 1 to {VMS_MAX} with {VCPUS_MAX}")));
        }
        Ok(arguments)
    }
}

fn gang(word: &str) -> Result<Gang, Error> {
    match word {
        "none" => Ok(Gang::Nobody),
        "con" => Ok(Gang::Named),
        "vcrd" => Ok(Gang::Reported),
        _ => Err(usage(&format!("{word:?} is not one of none, con and vcrd"))),
    }
}

/// `WEIGHT:NAMED:TID,TID…`
fn vm(word: &str) -> Result<Vm, Error> {
    let parts: Vec<&str> = word.split(':').collect();
    let [weight, named, tids] = parts[..] else {
        return Err(usage(&format!("{word:?} is no VM")));
    };
    let tids = tids.split(',').map(|tid| Ok(number(tid, 1, i32::MAX as u64)? as u32));
    Ok(Vm {
        weight: number(weight, 1, 10_000)? as u32,
        named: number(named, 0, 1)? == 1,
        tids: tids.collect::<Result<_, Error>>()?,
    })
}

fn number(word: &str, least: u64, most: u64) -> Result<u64, Error> {
    let found = word.parse().ok().filter(|number| (least..=most).contains(number));
    found.ok_or_else(|| usage(&format!("{word:?} is not a number from {least} to {most}")))
}

fn usage(what: &str) -> Error {
    Error::Usage(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Arguments::parse(&words).map_err(|e| e.to_string())
    }

    #[test]
    fn all_is_read() {
        let read = parse("con 1 6000 4 7 100:1:11,12 300:0:13").unwrap();
        let vms = vec![
            Vm { weight: 100, named: true, tids: vec![11, 12] },
            Vm { weight: 300, named: false, tids: vec![13] },
        ];
        assert_eq!(
            read,
            Arguments { gang: Gang::Named, capped: true, slot_us: 6000, pcpus: 4, seed: 7, vms }
        );
        assert_eq!(parse("none 0 1 1 0 1:0:1").unwrap().gang, Gang::Nobody);
        assert_eq!(parse("vcrd 0 1 1 0 1:0:1").unwrap().gang, Gang::Reported);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("con 0 6000 4", "missing"),
            ("gang 0 6000 4 1 1:1:1", "\"gang\""),
            ("con 0 0 4 1 1:1:1", "\"0\" is not a number from 1"),
            ("con 0 6000 9 1 1:1:1", "\"9\" is not a number from 1 to 8"),
            ("con 0 6000 4 1", "0 VMs"),
            ("con 2 6000 4 1 1:1:1", "\"2\""),
            ("con 0 6000 4 1 1:1:1 1:1:2 1:1:3 1:1:4 1:1:5 1:1:6 1:1:7 1:1:8 1:1:9", "9 VMs"),
            ("con 0 6000 4 1 1:1:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "17 vCPUs"),
            ("con 0 6000 4 1 1:1", "no VM"),
            ("con 0 6000 4 1 0:1:1", "\"0\""),
            ("con 0 6000 4 1 1:2:1", "\"2\""),
            ("con 0 6000 4 1 1:1:x", "\"x\""),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(named) && error.contains("usage"), "{line}: {error}");
        }
    }
}
