// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unspin export`: metrics of VMs, for Prometheus and other scrapers of OpenMetrics.

mod collect;
mod http;
mod metrics;
mod request;
mod text;

use crate::exit::said;
use crate::notify;
use crate::span::signals;
use crate::watch::facts::Detail;
use crate::watch::SourceArgs;
use anyhow::{anyhow, Context};
use collect::Collector;
use http::Answer;
use metrics::Own;
use request::{Request, Response};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use text::Format;
use unspin_probe::VCPUS_MAX;

/// Outside the ports that Prometheus's list assigns (9100 to 9999).
const LISTEN: &str = "127.0.0.1:19455";

/// Interval of looking for new VMs.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum age of a collection, and minimum time between two collections.
const FRESH: Duration = Duration::from_millis(200);

const HELP: &str = "\
Serves http://127.0.0.1:19455/metrics until it is stopped. docs/export.md lists the metrics. Every \
client can read the names of VMs and what they do. So the command listens only on the loopback address unless \
--listen names another. unspin-export.service runs it as a service; the service is not enabled by \
default.

BPF programs in the host kernel collect the times, as for `unspin diagnose`. The module is optional; if \
it is loaded, its counters are exported too. Requires root.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Address and port to listen on; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = LISTEN, value_parser = address)]
    listen: SocketAddr,
    /// Export at most this many vCPUs, with up to 36 series each. Beyond that, only the number of vCPUs is exported.
    #[arg(long, value_name = "N", default_value = "1024",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(VCPUS_MAX) - 1))]
    vcpus_max: u32,
    #[command(flatten)]
    source: SourceArgs,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let stopped = signals()?;
    let source = args.source.open(Detail::Module)?;
    let listener = listen(args.listen)?;
    let address = listener.local_addr().context("cannot read the address of the socket")?;
    let exporter = Arc::new(Exporter::new(Collector::new(source, args.vcpus_max as usize)));
    exporter.collector().collector.look()?;
    let answer = Arc::clone(&exporter);
    std::thread::spawn(move || http::serve(listener, answer));
    if !address.ip().is_loopback() {
        say!(
            "unspin: {address} is reachable from other computers: every client can read the names \
             of VMs and what they do; let only Prometheus through the firewall"
        );
    }
    say!("unspin: serving http://{address}/metrics");
    notify::tell("READY=1");
    while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        exporter.look();
    }
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let why = "expected an IP address and a port, such as 127.0.0.1:19455 or [::1]:19455";
    let address: SocketAddr = text.parse().map_err(|_| why.to_string())?;
    match address.ip().to_canonical() {
        ip if ip.is_multicast() => Err(format!("{ip} is a multicast address; {why}")),
        IpAddr::V4(ip) if ip.is_broadcast() => Err(format!("{ip} is a broadcast address; {why}")),
        _ => Ok(address),
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).map_err(|e| {
        let port = address.port();
        let why = match e.kind() {
            ErrorKind::AddrInUse => format!(
                "port {port} is taken by another program, perhaps another unspin export; `ss \
                 -ltnp` shows which; --listen {}:PORT uses another port",
                address.ip()
            ),
            ErrorKind::AddrNotAvailable => {
                format!("this computer has no address {}; `ip address` lists them", address.ip())
            }
            ErrorKind::PermissionDenied => format!("only root may listen on port {port}"),
            _ => e.to_string(),
        };
        anyhow!("cannot listen on {address}: {why}")
    })
}

struct Exporter {
    collected: Mutex<Collected>,
    own: Own,
}

struct Collected {
    collector: Collector,
    /// End of the last collection, and its duration.
    last: Option<(Instant, Duration)>,
    /// The last error. It is not reported again.
    wrong: Option<String>,
}

impl Exporter {
    fn new(collector: Collector) -> Exporter {
        let collected = Collected { collector, last: None, wrong: None };
        Exporter { collected: Mutex::new(collected), own: Own::default() }
    }

    fn collector(&self) -> MutexGuard<'_, Collected> {
        self.collected.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn look(&self) {
        let mut collected = self.collector();
        let looked = collected.collector.look();
        self.note(&mut collected, looked.err());
    }

    fn note(&self, collected: &mut Collected, wrong: Option<anyhow::Error>) -> Option<String> {
        let wrong = wrong.map(|e| said(&e));
        if let Some(why) = &wrong {
            self.own.failures.fetch_add(1, Ordering::Relaxed);
            if collected.wrong != wrong {
                say!("unspin: {why}");
            }
        }
        collected.wrong.clone_from(&wrong);
        wrong
    }

    fn metrics(&self, format: Format) -> Response {
        self.own.scrapes.fetch_add(1, Ordering::Relaxed);
        let mut collected = self.collector();
        if collected.last.is_none_or(|(at, _)| at.elapsed() > FRESH) {
            let start = Instant::now();
            let result = collected.collector.collect();
            if let Some(why) = self.note(&mut collected, result.err()) {
                return Response::line("500 Internal Server Error", &why);
            }
            collected.last = Some((Instant::now(), start.elapsed()));
        }
        let took = collected.last.map(|(_, took)| took).unwrap_or_default();
        let body = metrics::text(&collected.collector, &self.own, took, format);
        Response { status: "200 OK", content_type: format.content_type(), body }
    }
}

impl Answer for Arc<Exporter> {
    fn answer(&self, request: &Request) -> Response {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => {
                self.metrics(Format::of_accept(request.accept.as_deref()))
            }
            ("GET" | "HEAD", "/") => Response::line("200 OK", "unspin export: see /metrics"),
            ("GET" | "HEAD", _) => Response::line("404 Not Found", "no such page; see /metrics"),
            _ => Response::line("405 Method Not Allowed", "only GET and HEAD are allowed"),
        }
    }

    fn cut(&self) {
        self.own.cut.fetch_add(1, Ordering::Relaxed);
    }
}
