// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves HTTP to scrapers, each in its own thread. A client that makes no progress is disconnected
//! after a timeout, or earlier if other clients wait for its place.

use super::request::{parse, Request, Response, HEAD_MAX};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const TIME_MAX: Duration = Duration::from_secs(10);

/// Limit of connections. A further one waits until one of them is done or stalls.
pub const CONNECTIONS_MAX: usize = 32;

/// A client stalls if it has neither sent nor received anything for this time.
const STILL: Duration = Duration::from_millis(500);

/// Pause after a failed accept, for example for lack of file descriptors.
const REST: Duration = Duration::from_millis(100);

/// Interval of checks for room.
const LOOK: Duration = Duration::from_millis(5);

/// Stack size of threads; calls are not deep.
const STACK: usize = 512 * 1024;

pub trait Answer: Send + Sync + 'static {
    fn answer(&self, request: &Request) -> Response;

    /// Called when a connection is closed without a response.
    fn cut(&self);
}

/// What a connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The client, to send its request.
    Request,
    /// The client, to receive the response.
    Response,
    /// The response. The client is not the slow side.
    Answer,
    /// The client has its response and may close.
    Done,
}

struct Open {
    stream: TcpStream,
    stage: Stage,
    /// Time of its last progress.
    at: Instant,
}

impl Open {
    /// Whether it may be closed to make room for another.
    fn may_go(&self) -> bool {
        match self.stage {
            Stage::Request => self.at.elapsed() > STILL && !has_unread(&self.stream),
            Stage::Response => self.at.elapsed() > STILL,
            Stage::Answer => false,
            Stage::Done => true,
        }
    }
}

struct Server<A> {
    answer: A,
    /// Timeout of a request, and of its response.
    time_max: Duration,
    open: Mutex<BTreeMap<u64, Open>>,
}

/// Serves until the process ends.
pub fn serve<A: Answer>(listener: TcpListener, answer: A) {
    serve_within(TIME_MAX, listener, answer);
}

fn serve_within<A: Answer>(time_max: Duration, listener: TcpListener, answer: A) {
    let server = Arc::new(Server { answer, time_max, open: Mutex::new(BTreeMap::new()) });
    let mut last = 0;
    loop {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(REST);
            continue;
        };
        last += 1;
        if server.enter(last, &stream).is_err() {
            server.answer.cut();
            continue;
        }
        let (its, id) = (Arc::clone(&server), last);
        let serve = move || {
            if its.serve(id, stream).is_err() {
                its.answer.cut();
            }
            its.open().remove(&id);
        };
        if std::thread::Builder::new().stack_size(STACK).spawn(serve).is_err() {
            server.answer.cut();
            server.open().remove(&last);
        }
    }
}

impl<A: Answer> Server<A> {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers the connection once there is room. To make room, closes connections that are done,
    /// and then the one that has stalled longest.
    fn enter(&self, id: u64, stream: &TcpStream) -> io::Result<()> {
        let stream = stream.try_clone()?;
        let start = Instant::now();
        loop {
            let mut open = self.open();
            if open.len() >= CONNECTIONS_MAX {
                let may_go = open.iter().filter(|(_, open)| open.may_go());
                let first = may_go.min_by_key(|(_, open)| (open.stage != Stage::Done, open.at));
                if let Some(closed) = first.map(|(id, _)| *id).and_then(|id| open.remove(&id)) {
                    // This ends its thread.
                    let _ = closed.stream.shutdown(Shutdown::Both);
                }
            }
            if open.len() < CONNECTIONS_MAX {
                open.insert(id, Open { stream, stage: Stage::Request, at: Instant::now() });
                return Ok(());
            }
            drop(open);
            if start.elapsed() > self.time_max {
                return Err(ErrorKind::WouldBlock.into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Records progress of the connection, and its stage if that is new.
    fn note(&self, id: u64, stage: Option<Stage>) {
        if let Some(open) = self.open().get_mut(&id) {
            open.stage = stage.unwrap_or(open.stage);
            open.at = Instant::now();
        }
    }

    fn serve(&self, id: u64, stream: TcpStream) -> io::Result<()> {
        let got_on = || self.note(id, None);
        let mut stream = Timed { stream, end: Instant::now() + self.time_max, got_on: &got_on };
        let asked = ask(&mut stream)?;
        self.note(id, Some(Stage::Answer));
        let (response, has_body) = match asked {
            Ok(request) => (self.answer.answer(&request), request.method != "HEAD"),
            Err(refusal) => (refusal, true),
        };
        stream.end = Instant::now() + self.time_max;
        self.note(id, Some(Stage::Response));
        stream.write_all(&response.bytes(has_body))?;
        stream.stream.shutdown(Shutdown::Write)?;
        // Closing a socket with unread input would discard the response.
        let end = Instant::now() + self.time_max;
        let mut rest = Timed { end, got_on: &|| (), ..stream };
        self.note(id, Some(Stage::Done));
        let mut part = [0; HEAD_MAX];
        for _ in 0..HEAD_MAX {
            if !matches!(rest.read(&mut part), Ok(1..)) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether the client has sent what its thread has not read yet: on a busy host the thread waits for a CPU.
fn has_unread(stream: &TcpStream) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: recv writes at most one byte, to a valid address.
    unsafe { libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, flags) > 0 }
}

fn ask(stream: &mut Timed) -> io::Result<Result<Request, Response>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let read = stream.read(&mut part)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..read]);
        match parse(&bytes) {
            Ok(None) => {}
            Ok(Some(request)) => return Ok(Ok(request)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
}

/// A connection with a deadline, for reads and writes together.
struct Timed<'a> {
    stream: TcpStream,
    end: Instant,
    /// Called whenever bytes were read or written.
    got_on: &'a dyn Fn(),
}

impl Timed<'_> {
    fn note(&self, bytes: usize) -> usize {
        if bytes > 0 {
            (self.got_on)();
        }
        bytes
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes).map(|read| self.note(read))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map(|written| self.note(written))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// More than the kernel buffers for a client that reads nothing.
    const LONG: usize = 32 << 20;

    struct Echo(Arc<AtomicUsize>);

    impl Answer for Echo {
        fn answer(&self, request: &Request) -> Response {
            match request.path.as_str() {
                "/long" => Response::line("200 OK", &"x".repeat(LONG)),
                "/slow" => {
                    std::thread::sleep(2 * STILL);
                    Response::line("200 OK", "slow")
                }
                path => Response::line("200 OK", path),
            }
        }

        fn cut(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// No test takes as long.
    const AN_HOUR: Duration = Duration::from_secs(3600);
    const PATIENCE: Duration = Duration::from_secs(300);

    fn server() -> (SocketAddr, Arc<AtomicUsize>) {
        server_within(TIME_MAX)
    }

    fn server_within(time_max: Duration) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, cut) = (listener.local_addr().unwrap(), Arc::default());
        let echo = Echo(Arc::clone(&cut));
        std::thread::spawn(move || serve_within(time_max, listener, echo));
        (address, cut)
    }

    fn ask(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Not even while their time is not over.
    #[test]
    fn those_that_hang_keep_nobody_from_being_served() {
        let (address, cut) = server_within(AN_HOUR);
        let hang = |i: usize| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&b"GET / HT"[..i % 9]).unwrap();
            stream
        };
        let hanging: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX).map(hang).collect();
        for _ in 0..10 {
            let said = ask(address, b"GET /here?q HTTP/1.1\r\n\r\n");
            assert!(
                said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n/here\n"),
                "{said}"
            );
        }
        assert!(cut.load(Ordering::Relaxed) > CONNECTIONS_MAX);
        drop(hanging);
    }

    /// A slow scrape is not the client's fault: it stays while stalled clients are closed.
    #[test]
    fn who_waits_for_its_response_is_not_cut_off() {
        let (address, _) = server();
        let slow: Vec<_> = (0..3)
            .map(|_| std::thread::spawn(move || ask(address, b"GET /slow HTTP/1.1\r\n\r\n")))
            .collect();
        let not_reading = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /long HTTP/1.1\r\n\r\n").unwrap();
            stream
        };
        let hanging: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX).map(not_reading).collect();
        for _ in 0..10 {
            let said = ask(address, b"GET /here HTTP/1.1\r\n\r\n");
            assert!(said.ends_with("\r\n/here\n"), "{said}");
        }
        for slow in slow {
            let said = slow.join().unwrap();
            assert!(said.ends_with("\r\nslow\n"), "{said}");
        }
        drop(hanging);
    }

    #[test]
    fn many_clients_at_once_are_all_served() {
        let (address, cut) = server();
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for _ in 0..250 {
                        let said = ask(address, b"GET /here HTTP/1.1\r\n\r\n");
                        assert!(said.ends_with("\r\n/here\n"), "{said}");
                    }
                });
            }
        });
        assert_eq!(cut.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn rubbish_is_answered() {
        let (address, _) = server();
        assert!(ask(address, b"\x16\x03\x01 rubbish\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let long = [&b"GET / HTTP/1.1\r\nx: "[..], &[b'x'; 100_000]].concat();
        assert!(ask(address, &long).starts_with("HTTP/1.1 431 "));
        let head = ask(address, b"HEAD /x HTTP/1.0\r\n\r\n");
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 3\r\n"), "{head}");
    }
}
