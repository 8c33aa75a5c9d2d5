//! Packets over a Unix socket, as the control daemon has them: one that is sent is one that is read.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recv, send, socket_with,
};

fn socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Listens at a path.
pub(super) fn listener(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    bind(&socket, &SocketAddrUnix::new(path.as_os_str().as_bytes())?)?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Connects to a path.
pub(super) fn connected(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    connect(&socket, &SocketAddrUnix::new(path.as_os_str().as_bytes())?)?;
    Ok(socket)
}

pub(super) fn say(socket: impl AsFd, text: &str) -> io::Result<()> {
    send(socket, text.as_bytes(), SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next packet; none when the other side is gone.
pub(super) fn hear(socket: impl AsFd) -> io::Result<Option<String>> {
    let mut buffer = [0; 4096];
    let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
    let text = buffer.get(..length).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Ok(text.filter(|text| !text.is_empty()))
}
