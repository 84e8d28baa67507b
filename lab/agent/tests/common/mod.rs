// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans, and agents that are given them.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use unspin_scenario::plan::{Host, LinuxFiles, Plan, Run, SCHEMA};
use unspin_scenario::result::{Record, RunResult};

pub const AGENT: &str = env!("CARGO_BIN_EXE_unspin-agent");

pub fn plan_of(linux: Option<LinuxFiles>, runs: Vec<Run>) -> Plan {
    Plan {
        schema: SCHEMA,
        scenario: "test".into(),
        title: "test".into(),
        scenario_hash: "0".into(),
        host: Host::new(1),
        linux,
        runs,
    }
}

pub fn plan_file(name: &str, plan: &Plan) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    std::fs::write(&path, plan.to_json()).unwrap();
    path
}

/// How an agent has ended, and what it said.
pub struct Said {
    pub code: i32,
    pub records: Vec<Record>,
    pub pid: u32,
}

/// Starts an agent with the plan in a file.
pub fn start(plan: &Path, out: Stdio) -> Child {
    Command::new(AGENT).arg("agent").arg(plan).stdout(out).spawn().unwrap()
}

/// Runs an agent with this plan.
pub fn said(name: &str, plan: &Plan) -> Said {
    let child = start(&plan_file(name, plan), Stdio::piped());
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let records = text.lines().map(|line| Record::from_json(line.as_bytes()).unwrap()).collect();
    Said { code: output.status.code().unwrap(), records, pid }
}

impl Said {
    pub fn error(&self, id: u32) -> &str {
        let failed = self.records.iter().find_map(|record| match record {
            Record::Failed { id: failed, error } if *failed == id => Some(error.as_str()),
            _ => None,
        });
        failed.unwrap_or_else(|| panic!("run {id} did not fail: {:?}", self.records))
    }

    /// The runs that were measured.
    pub fn results(&self) -> Vec<&RunResult> {
        let measured = self.records.iter().filter_map(|record| match record {
            Record::Run(result) => Some(&**result),
            _ => None,
        });
        measured.collect()
    }
}
