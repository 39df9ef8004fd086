"""The sockets the service listens on, opened before anything slow is started, and what is said when they cannot be."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys

import psutil

from runtime.service.doors import CannotServe

BACKLOG = 1024
# Clients that say "localhost" may mean either; the second is a courtesy and may fail.
_BOTH_LOOPBACKS = ("127.0.0.1", "localhost")


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets, the asked one first; port 0 lets the system choose. Raises CannotServe with the way out."""
    if host not in _BOTH_LOOPBACKS:
        return [_listen(*_address(host, port), host, port)]
    first = _listen(socket.AF_INET, "127.0.0.1", host, port)
    with contextlib.suppress(CannotServe):
        return [first, _listen(socket.AF_INET6, "::1", host, port_of(first))]
    return [first]


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def _address(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise _no_address(host) from None
    family, _, _, _, address = found[0]
    return family, str(address[0])


def _listen(family: socket.AddressFamily, address: str, host: str, port: int) -> socket.socket:
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        raise _no_address(host) from None
    try:
        if sys.platform == "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # A port whose last connections are still fading out can be taken again; one in use cannot.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _refused(error, host, port) from None
    return listener


def _refused(error: OSError, host: str, port: int) -> CannotServe:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65535 else port - 1
        return CannotServe(
            f"port {port} is taken by {_owner(port)}: stop that, or serve on another port, such as --port {other}"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return CannotServe(f"this user may not listen on port {port}: serve on one above 1023 with --port")
    if error.errno == errno.EADDRNOTAVAIL:
        return _no_address(host)
    return CannotServe(f"cannot listen on {host} port {port}: {error.strerror}. Try another --port")


def _no_address(host: str) -> CannotServe:
    return CannotServe(f"--host {host} is not an address of this computer; leave it out to serve this computer only")


def _owner(port: int) -> str:
    """The program that listens there, as far as this user may know."""
    with contextlib.suppress(psutil.Error, OSError, RuntimeError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return "another program, perhaps another headrace"
