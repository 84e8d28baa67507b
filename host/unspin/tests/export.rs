// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin export` with synthetic VMs: what it serves and refuses, and a real Prometheus that scrapes it
//! and answers all queries of contrib/.

mod common;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unspin_scratch::{Killed, Scratch};

const WAIT: Duration = Duration::from_secs(60);

/// One VM of each kind, and two VMs too many.
fn exporter() -> (Killed, SocketAddr) {
    let mut exporter = Command::new(env!("CARGO_BIN_EXE_unspin"))
        .args(["export", "--listen", "127.0.0.1:0", "--synthetic", "8x2", "--vcpus-max", "12"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(exporter.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("unspin: serving http://");
    let address = address.and_then(|rest| rest.strip_suffix("/metrics")?.parse().ok());
    (Killed(exporter), address.unwrap_or_else(|| panic!("{line}")))
}

/// Head and body of an answer.
fn get(address: SocketAddr, path: &str, header: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WAIT))?;
    write!(stream, "GET {path} HTTP/1.0\r\n{header}\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Ok((head.to_string(), body.to_string()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn fails(args: &[&str], code: i32, words: &str) {
    common::fails(&[&["export"], args].concat(), code, words);
}

#[test]
fn what_cannot_be_listened_on_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let args = ["--synthetic", "1x1", "--listen", &address.to_string()];
    fails(&args, 1, &format!("port {} is taken by another program", address.port()));
    fails(&args, 1, "--listen 127.0.0.1:PORT uses another");
    fails(&["--synthetic", "1x1", "--listen", "192.0.2.1:80"], 1, "no address 192.0.2.1");
    fails(&["--listen", "localhost"], 2, "--listen");
    for no_host in ["224.0.0.1:0", "[ff02::1]:0", "[::ffff:224.0.0.1]:0", "255.255.255.255:0"] {
        fails(&["--synthetic", "1x1", "--listen", no_host], 2, "expected an IP address");
    }
    fails(&["--vcpus-max", "many"], 2, "--vcpus-max");
    fails(&["--vcpus-max", "16384"], 2, "16384 is not in 1..=16383");
}

#[test]
fn metrics_are_served_in_the_format_that_is_asked_for() {
    let (mut exporter, address) = exporter();
    let (head, open) =
        get(address, "/metrics", "Accept: application/openmetrics-text\r\n").unwrap();
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    // As a request of curl, for `promtool check metrics`.
    let (head, plain) = get(address, "/metrics?x", "Accept: */*\r\n").unwrap();
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(!plain.contains("# EOF") && plain.contains("# TYPE unspin_vcpu_seconds_total counter"));
    assert!(get(address, "/metric", "").unwrap().0.starts_with("HTTP/1.1 404 "));
    // No metric has addresses of a guest's code.
    assert!(!plain.contains("0x"), "{plain}");
    common::vm_host::signal(exporter.0.id(), libc::SIGTERM);
    assert!(exporter.0.wait().unwrap().success());
}

fn is_installed() -> bool {
    let prometheus = Command::new("prometheus").arg("--version").output();
    prometheus.is_ok() && Command::new("promtool").arg("--version").output().is_ok()
}

#[track_caller]
fn promtool(args: &[&str], input: &str) {
    let mut tool = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = tool.wait_with_output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said));
}

/// Prometheus with our rules, which scrapes the exporter and a closed port.
fn prometheus(dir: &Path, exporter: SocketAddr) -> (Killed, SocketAddr) {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (nobody, address) = (free(), free());
    let rules = root().join("contrib/prometheus/unspin.rules.yml");
    let config = dir.join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
         rule_files: [{rules:?}]\n\
         scrape_configs:\n  - job_name: unspin\n    static_configs:\n      \
         - targets: [\"{exporter}\", \"{nobody}\"]\n"
    );
    fs::write(&config, text).unwrap();
    promtool(&["check", "config", config.to_str().unwrap()], "");
    let log = fs::File::create(dir.join("log")).unwrap();
    let running = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    (Killed(running), address)
}

fn url_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Prometheus's answer to a query.
fn ask(address: SocketAddr, query: &str) -> Result<Vec<Value>, String> {
    let path = format!("/api/v1/query?query={}", url_encoded(query));
    let (_, body) = get(address, &path, "").map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
    match answer["data"]["result"].as_array() {
        Some(result) => Ok(result.clone()),
        None => Err(answer["error"].to_string()),
    }
}

/// The queries of a dashboard, with Grafana's variables replaced.
fn of_dashboard() -> Vec<String> {
    let text = fs::read_to_string(root().join("contrib/grafana/unspin.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let filled = |query: &str| {
        let all = query.replace("$instance", ".*").replace("$vm", ".*");
        all.replace("$__rate_interval", "30s")
    };
    let mut queries: Vec<String> =
        targets.map(|target| filled(target["expr"].as_str().unwrap())).collect();
    // Variables are label_values(METRIC, LABEL).
    for variable in board["templating"]["list"].as_array().unwrap() {
        let query = variable["query"]["query"].as_str().unwrap_or_default();
        if let Some(of) = query.strip_prefix("label_values(").and_then(|of| of.strip_suffix(')')) {
            queries.push(filled(of.rsplit_once(',').unwrap().0));
        }
    }
    assert!(queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    queries
}

/// The expressions of the alerts: each is one line, or the following lines that are indented
/// further.
fn of_rules() -> Vec<String> {
    let text = fs::read_to_string(root().join("contrib/prometheus/unspin.rules.yml")).unwrap();
    let mut lines = text.lines().peekable();
    let mut queries = Vec::new();
    while let Some(line) = lines.next() {
        match line.trim().strip_prefix("expr: ") {
            None => {}
            Some("|") => {
                let mut query = String::new();
                while let Some(more) = lines.next_if(|line| line.starts_with("          ")) {
                    query = query + more.trim() + " ";
                }
                queries.push(query);
            }
            Some(query) => queries.push(query.to_string()),
        }
    }
    assert_eq!(queries.len(), text.matches("- alert: ").count());
    queries
}

#[test]
fn prometheus_scrapes_it_and_every_query_has_an_answer() {
    if !is_installed() {
        println!("SKIPPED: Prometheus: apt-get install prometheus");
        return;
    }
    promtool(
        &["check", "rules", root().join("contrib/prometheus/unspin.rules.yml").to_str().unwrap()],
        "",
    );
    let (_exporter, address) = exporter();
    let (_, plain) = get(address, "/metrics", "Accept: */*\r\n").unwrap();
    promtool(&["check", "metrics"], &plain);

    let dir = Scratch::new();
    let (_prometheus, prometheus) = prometheus(&dir, address);
    // Queries without an answer may have one with more samples.
    let mut open: Vec<String> = of_dashboard().into_iter().chain(of_rules()).collect();
    assert!(open.len() > 20, "{open:?}");
    let end = Instant::now() + WAIT;
    while !open.is_empty() {
        let answered = |query: &String| !ask(prometheus, query).is_ok_and(|rows| !rows.is_empty());
        open.retain(answered);
        if Instant::now() > end {
            let why: Vec<String> =
                open.iter().map(|query| format!("{query}: {:?}", ask(prometheus, query))).collect();
            let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
            panic!("no answer to:\n{}\n{log}", why.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    // The synthetic lost time: 33 % of the first vCPU, three quarters of that of the second.
    let lost =
        "sum by (vm) (irate(unspin_vcpu_lost_seconds_total{cause=\"contention\"}[30s])) > 0.4";
    let rows = ask(prometheus, lost).unwrap();
    assert_eq!(rows[0]["metric"]["vm"], "web1", "{rows:?}");
    let seconds: f64 = rows[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!((seconds - 0.33 * 1.75).abs() < 0.1, "{seconds}");
    let evil = ask(prometheus, "unspin_vm_info{vm=~\"calm.*\"}").unwrap();
    assert_eq!(evil[0]["metric"]["vm"], "calm \\u{1b}[31m\"x\"\\\\\\n\\xff1");
}
