// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request for a measurement: `BEGIN_NS END_NS PID:TID,TID… …`.

use unspin_probe::Thread;

/// A measuring time by CLOCK_MONOTONIC, and the vCPUs' threads of each VM.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub vms: Vec<Vec<Thread>>,
}

impl Request {
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(line: &str) -> Result<Request, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [begin, end, vms @ ..] = &words[..] else {
            return Err("a request has a begin and an end".into());
        };
        let request = Request {
            begin_ns: number(begin)?,
            end_ns: number(end)?,
            vms: vms.iter().map(|word| vm(word)).collect::<Result<_, _>>()?,
        };
        match request.begin_ns < request.end_ns && !request.vms.is_empty() {
            true => Ok(request),
            false => Err(format!("{line:?} is no request to watch VMs")),
        }
    }
}

/// `PID:TID,TID…`
fn vm(word: &str) -> Result<Vec<Thread>, String> {
    let (pid, tids) = word.split_once(':').ok_or_else(|| format!("{word:?} is no VM"))?;
    let pid = number(pid)?;
    tids.split(',').map(|tid| Ok(Thread { tid: number(tid)?, pid })).collect()
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_window_and_its_vms() {
        let thread = |tid, pid| Thread { tid, pid };
        let vms = vec![vec![thread(11, 10), thread(12, 10)], vec![thread(21, 20)]];
        let expected = Request { begin_ns: 5, end_ns: 9, vms };
        assert_eq!(Request::parse("5 9 10:11,12 20:21\n"), Ok(expected));
        for wrong in ["", "5", "5 9", "9 5 10:11", "5 9 10", "5 9 10:", "5 9 x:11", "-5 9 10:11"] {
            assert!(Request::parse(wrong).is_err(), "{wrong}");
        }
    }
}
