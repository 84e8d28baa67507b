// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports the state of a service to the service manager (sd_notify(3)), if there is one.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state`, such as `READY=1`. A failure is ignored: a manager that does not listen is no
/// error.
pub fn tell(state: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(&path, state);
    }
}

fn send(path: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_it_on_either_kind_of_socket() {
        let name = format!("unspin-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ] {
            send(&address, "READY=1").unwrap();
            let mut text = [0; 32];
            let got = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..got], b"READY=1");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(send(path.as_os_str(), "READY=1").is_err());
    }
}
