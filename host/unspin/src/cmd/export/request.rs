// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and responses.

/// Longest head of a request, in bytes.
pub const HEAD_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Without `?` and what follows.
    pub path: String,
    pub accept: Option<String>,
}

pub struct Response {
    pub status: &'static str,
    pub content_type: &'static str,
    pub body: String,
}

impl Response {
    pub fn line(status: &'static str, text: &str) -> Response {
        Response { status, content_type: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    /// The bytes to send. `has_body` is false for HEAD.
    pub fn bytes(&self, has_body: bool) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len(),
        );
        let body = if has_body { self.body.as_str() } else { "" };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

/// Parses the head of a request; `None` if it is incomplete.
pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Response> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            return Err(Response::line(status, "the request header is too long"));
        }
        Err(e) => {
            let text = format!("not an HTTP/1.1 request: {e}");
            return Err(Response::line("400 Bad Request", &text));
        }
    }
    let accept = parsed.headers.iter().filter(|of| of.name.eq_ignore_ascii_case("accept"));
    let accept: Vec<_> = accept.map(|of| String::from_utf8_lossy(of.value)).collect();
    Ok(Some(Request {
        method: parsed.method.unwrap_or_default().to_string(),
        path: path_of(parsed.path.unwrap_or_default()).to_string(),
        // Several lines are one list (RFC 9110, 5.3).
        accept: (!accept.is_empty()).then(|| accept.join(",")),
    }))
}

/// The path of a request's target, without its query. The target may be a whole address (RFC 9112, 3.2.2).
fn path_of(target: &str) -> &str {
    const SCHEME: &str = "http://";
    let is_whole = target.get(..SCHEME.len()).is_some_and(|of| of.eq_ignore_ascii_case(SCHEME));
    let path = match is_whole {
        true => {
            target[SCHEME.len()..].find(['/', '?']).map_or("", |at| &target[SCHEME.len() + at..])
        }
        false => target,
    };
    match path.split('?').next().unwrap_or_default() {
        "" if is_whole => "/",
        path => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read_and_rubbish_is_refused() {
        let get = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain\r\n\r\nmore";
        let request = parse(get).ok().flatten().unwrap();
        assert_eq!((&*request.method, &*request.path), ("GET", "/metrics"));
        assert_eq!(request.accept.as_deref(), Some("text/plain"));
        let two = b"GET / HTTP/1.1\r\nAccept: text/plain;q=0.5\r\naccept: */*\r\n\r\n";
        let request = parse(two).ok().flatten().unwrap();
        assert_eq!(request.accept.as_deref(), Some("text/plain;q=0.5,*/*"));
        let status = |bytes: &[u8]| parse(bytes).err().map(|response| &response.status[..3]);
        // The beginning of a TLS connection.
        assert_eq!(status(b"\x16\x03\x01\x02\x00"), Some("400"));
        assert_eq!(status(b"GET / HTTP/1.1\r\nno header\r\n\r\n"), Some("400"));
        let long = [&b"GET / HTTP/1.1\r\nx: "[..], &[b'x'; HEAD_MAX]].concat();
        assert_eq!(status(&long), Some("431"));
        let many = ["GET / HTTP/1.1\r\n", &"a: b\r\n".repeat(65), "\r\n"].concat();
        assert_eq!(status(many.as_bytes()), Some("431"));
    }

    #[test]
    fn a_target_may_be_a_whole_address() {
        for (target, path) in [
            ("http://127.0.0.1/metrics", "/metrics"),
            ("HTTP://[::1]:9732/metrics?x=http://a/b", "/metrics"),
            ("http://host", "/"),
            ("http://host?x=/y", "/"),
            ("http://host/", "/"),
            ("/http://host/metrics", "/http://host/metrics"),
            ("*", "*"),
        ] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let request = parse(request.as_bytes()).ok().flatten().unwrap();
            assert_eq!(request.path, path, "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
            let _ = parse(&[b"GET / HTTP/1.1\r\n", bytes.as_slice()].concat());
        }

        #[test]
        fn a_request_is_complete_at_its_end(path in "/[a-z]{0,20}", cut in 0..100usize) {
            let whole = format!("GET {path} HTTP/1.0\r\nAccept: */*\r\n\r\n");
            let cut = cut.min(whole.len() - 1);
            prop_assert!(parse(&whole.as_bytes()[..cut]).is_ok_and(|request| request.is_none()));
            let request = parse(whole.as_bytes()).ok().flatten().unwrap();
            prop_assert_eq!(request.path, path);
        }
    }
}
