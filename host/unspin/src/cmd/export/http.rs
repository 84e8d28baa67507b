// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves HTTP to scrapers, each in its own thread. A hanging client is disconnected after a timeout, or
//! at once if others wait for its place.

use super::request::{parse, Request, Response, HEAD_MAX};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Timeout of a request, and of its response.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Limit of connections. A further one disconnects the oldest.
pub const CONNECTIONS_MAX: usize = 32;

/// After it could not accept a connection, for want of descriptors for example; and how long a connection
/// waits for threads to end.
const REST: Duration = Duration::from_millis(100);

/// Stack size of threads; calls are not deep.
const STACK: usize = 512 * 1024;

/// A handler of requests.
pub trait Answer: Send + Sync + 'static {
    fn answer(&self, request: &Request) -> Response;

    /// A connection was closed without a response.
    fn cut(&self);
}

struct Server<A> {
    answer: A,
    /// Those that are served, in the order in which they came.
    open: Mutex<BTreeMap<u64, TcpStream>>,
}

/// Serves until the process ends.
pub fn serve<A: Answer>(listener: TcpListener, answer: A) {
    let server = Arc::new(Server { answer, open: Mutex::new(BTreeMap::new()) });
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
            if its.serve(stream).is_err() {
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
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes room, and notes the connection. Threads of those that are cut off end by themselves; if
    /// they do not come to that soon, there is no room.
    fn enter(self: &Arc<Self>, id: u64, stream: &TcpStream) -> io::Result<()> {
        let start = Instant::now();
        while Arc::strong_count(self) > 2 * CONNECTIONS_MAX {
            if start.elapsed() > REST {
                return Err(ErrorKind::WouldBlock.into());
            }
            std::thread::sleep(REST / 100);
        }
        let mut open = self.open();
        if open.len() >= CONNECTIONS_MAX {
            if let Some((_, oldest)) = open.pop_first() {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        open.insert(id, stream.try_clone()?);
        Ok(())
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut stream = Timed { stream, end: Instant::now() + TIME_MAX };
        let (response, has_body) = match ask(&mut stream)? {
            Ok(request) => (self.answer.answer(&request), request.method != "HEAD"),
            Err(refusal) => (refusal, true),
        };
        stream.end = Instant::now() + TIME_MAX;
        stream.write_all(&response.bytes(has_body))?;
        stream.stream.shutdown(Shutdown::Write)?;
        // Unread input at close would discard the response.
        let mut rest = [0; HEAD_MAX];
        for _ in 0..HEAD_MAX {
            if !matches!(stream.read(&mut rest), Ok(1..)) {
                break;
            }
        }
        Ok(())
    }
}

/// Reads a request.
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

/// A connection with a deadline, however slow the other side is.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
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

    struct Echo(Arc<AtomicUsize>);

    impl Answer for Echo {
        fn answer(&self, request: &Request) -> Response {
            Response::line("200 OK", &request.path)
        }

        fn cut(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn server() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, cut) = (listener.local_addr().unwrap(), Arc::default());
        let echo = Echo(Arc::clone(&cut));
        std::thread::spawn(move || serve(listener, echo));
        (address, cut)
    }

    fn ask(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn those_that_hang_keep_nobody_from_being_served() {
        let (address, cut) = server();
        let hang = |i: usize| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&b"GET / HT"[..i % 9]).unwrap();
            stream
        };
        let hanging: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX).map(hang).collect();
        let start = Instant::now();
        for _ in 0..10 {
            let said = ask(address, b"GET /here?q HTTP/1.1\r\n\r\n");
            assert!(
                said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n/here\n"),
                "{said}"
            );
        }
        assert!(start.elapsed() < TIME_MAX / 2, "{:?}", start.elapsed());
        assert!(cut.load(Ordering::Relaxed) > CONNECTIONS_MAX);
        drop(hanging);
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
