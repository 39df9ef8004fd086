"""Who may come in: the names and origins this service answers to, and whether a key is the right one.

Pure decisions over raw header values; `guard.py` acts on them.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.config import ServiceOptions
from runtime.errors import HeadraceError

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
# Pages of this computer: they come from programs its owner started.
_LOOPBACK_ORIGIN = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?")
# Windows of editors and desktop programs; no web page can have such an origin.
_PROGRAM_ORIGIN = re.compile(r"(?:vscode-webview|vscode-file|app|tauri)://[A-Za-z0-9._-]*")
_HOST = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(:\d+)?")
_HTTP_PORT = 80


class CannotServe(HeadraceError):
    """The service cannot start as it was asked to. One sentence with the way out."""

    code = "cannot_serve"


@dataclass(frozen=True, slots=True)
class Doors:
    """`everywhere` is true when the service listens on all addresses of this computer; then those are names too."""

    hosts: frozenset[bytes]
    origins: frozenset[str]
    everywhere: bool
    keys: tuple[bytes, ...]

    def host_allowed(self, host: bytes, local: tuple[str, int | None] | None) -> bool:
        name = host.lower()
        if name in self.hosts:
            return True
        # The address the connection came in on is no name that a foreign page could have made up.
        return self.everywhere and local is not None and name in _with_port(_literal(local[0]), local[1] or 0)

    def origin_allowed(self, origin: str, host: bytes) -> bool:
        """`host` was allowed before: a page of this service itself is no stranger."""
        if origin in self.origins or origin in _own(host):
            return True
        return bool(_LOOPBACK_ORIGIN.fullmatch(origin) or _PROGRAM_ORIGIN.fullmatch(origin))

    def key_fits(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Every offer is compared with every key, in constant time each."""
        offers = [offer for name, value in headers if (offer := _offer(name, value)) is not None]
        fits = [hmac.compare_digest(offer, key) for offer in offers for key in self.keys]
        return not self.keys or any(fits)


def doors(options: ServiceOptions) -> Doors:
    """Raises CannotServe when the service would be open to other computers without a key."""
    check_binding(options)
    names = [*LOOPBACK_NAMES, _bracketed(options.host)]
    hosts = {host for name in names for host in _with_port(name, options.port)}
    for allowed in options.allow_hosts:
        match = _HOST.fullmatch(allowed)
        hosts |= {allowed.lower().encode()}
        if match and not match[2]:
            hosts |= _with_port(allowed, options.port)
    key = (options.api_key.encode(),) if options.api_key else ()
    return Doors(frozenset(hosts), frozenset(options.allow_origins), _is_everywhere(options.host), key)


def check_binding(options: ServiceOptions) -> None:
    if not options.api_key and not is_loopback(options.host):
        raise CannotServe(
            f"--host {options.host} would let other computers in without a key: add --api-key KEY, or leave --host out "
            f"to serve this computer only"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def single(values: Sequence[bytes]) -> bytes | None:
    """The one value of a header that must not be sent twice."""
    return values[0] if len(values) == 1 else None


def _offer(name: bytes, value: bytes) -> bytes | None:
    if name in (b"x-api-key", b"api-key"):
        return value.strip()
    if name == b"authorization":
        scheme, _, token = value.strip().partition(b" ")
        return token.strip() if scheme.lower() == b"bearer" else None
    return None


def _with_port(name: str, port: int) -> set[bytes]:
    """Clients leave the port out where it is HTTP's own."""
    name = name.lower()
    hosts = {f"{name}:{port}".encode()}
    return hosts | {name.encode()} if port == _HTTP_PORT else hosts


def _own(host: bytes) -> tuple[str, str]:
    name = host.decode("latin-1").lower()
    return f"http://{name}", f"https://{name}"


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return host == ""


def _literal(address: str) -> str:
    """A local address as a Host header writes it."""
    return _bracketed(address.removeprefix("::ffff:").partition("%")[0])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
