"""The gate in front of every route: sizes of headers, Host, Origin, preflights, key.

Reads only `scope["path"]`, the local address and raw headers: anything rebuilt from them, a URL say, can be forged by
them. Also makes one path of all ways to write it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models import limits
from runtime.errors import Forbidden, HeadersTooLarge, HeadraceError, InvalidRequest, Unauthorized, UnsupportedMedia
from runtime.service.doors import Doors, single
from runtime.service.problems import Problems

OPEN_PATHS = ("/health", "/v1/health")
METHODS = "GET, HEAD, POST, OPTIONS"
PREFLIGHT_S = "600"
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
# What one header line costs besides its name and value.
_LINE_BYTES = 4

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Visit:
    """The part of a request that decides whether it may come in."""

    method: str
    path: str
    headers: Headers
    local: tuple[str, int | None] | None

    def values(self, name: bytes) -> list[bytes]:
        return [value for header, value in self.headers if header == name]


class Guard:
    """ASGI middleware. Refuses before routing; adds CORS headers for origins that may read the answer."""

    def __init__(self, app: ASGIApp, doors: Doors, problems: Problems) -> None:
        self._app = app
        self._doors = doors
        self._problems = problems

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        visit = Visit(scope["method"], _normal(scope["path"]), scope["headers"], scope.get("server"))
        origin: bytes | None = None
        try:
            _check_size(visit)
            host = self._check_host(visit)
            origin = self._check_origin(visit, host)
            if visit.method == "OPTIONS":
                await _preflight(visit)(scope, receive, _with_cors(send, origin))
                return
            self._check_key(visit)
            _check_media(visit, origin)
        except HeadraceError as error:
            await self._problems.response(error)(scope, receive, _with_cors(send, origin))
            return
        scope["path"] = visit.path
        await self._app(scope, receive, _with_cors(send, origin))

    def _check_host(self, visit: Visit) -> bytes:
        hosts = visit.values(b"host")
        host = single(hosts)
        if host is None:
            raise Forbidden(f"a request needs exactly one Host header, this one has {len(hosts)}")
        if not self._doors.host_allowed(host, visit.local):
            raise Forbidden(
                f"this server does not answer to the name {_shown(host)}. Use 127.0.0.1 or localhost with its port, or "
                f"serve with --allow-host NAME"
            )
        return host

    def _check_origin(self, visit: Visit, host: bytes) -> bytes | None:
        origins = visit.values(b"origin")
        if not origins:
            return None
        origin = single(origins)
        if origin is None or not self._doors.origin_allowed(origin.decode("latin-1"), host):
            raise Forbidden(
                f"pages from {_shown(origins[0])} may not use this server; if they should, serve with "
                f"--allow-origin ORIGIN"
            )
        return origin

    def _check_key(self, visit: Visit) -> None:
        if visit.path not in OPEN_PATHS and not self._doors.key_fits(visit.headers):
            raise Unauthorized(
                "this server needs its API key: send the key it was started with as Authorization: Bearer KEY"
            )


def _normal(path: str) -> str:
    """With and without a slash at the end is the same."""
    return path.rstrip("/") or "/" if path.startswith("/") else path


def _check_size(visit: Visit) -> None:
    if not visit.path.startswith("/"):
        raise InvalidRequest("the request target must be a path that begins with /")
    n_bytes = len(visit.path) + sum(len(name) + len(value) + _LINE_BYTES for name, value in visit.headers)
    if len(visit.headers) > limits.HEADER_COUNT or n_bytes > limits.HEADER_BYTES:
        raise HeadersTooLarge(
            f"the request has {len(visit.headers)} headers of {n_bytes} bytes, {limits.HEADER_COUNT} of "
            f"{limits.HEADER_BYTES} bytes are allowed"
        )


def _check_media(visit: Visit, origin: bytes | None) -> None:
    """A page may send plain text anywhere without asking first; JSON it may not."""
    if origin is None or visit.method != "POST":
        return
    kind = b",".join(visit.values(b"content-type")).partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise UnsupportedMedia(f"a page must send application/json, not {_shown(kind) if kind else 'an unnamed type'}")


def _preflight(visit: Visit) -> Response:
    headers = {"Allow": METHODS}
    if visit.values(b"origin"):
        asked = b", ".join(visit.values(b"access-control-request-headers"))
        headers["Access-Control-Allow-Methods"] = METHODS
        headers["Access-Control-Allow-Headers"] = asked.decode() if _HEADER_NAMES.fullmatch(asked) else "*"
        headers["Access-Control-Max-Age"] = PREFLIGHT_S
        if visit.values(b"access-control-request-private-network"):
            headers["Access-Control-Allow-Private-Network"] = "true"
    return Response(b"", 200, headers)


def _with_cors(send: Send, origin: bytes | None) -> Send:
    if origin is None:
        return send
    added = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-expose-headers", b"retry-after, x-headrace-dropped-turns"),
        (b"vary", b"Origin"),
    ]

    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sender


def _shown(value: bytes) -> str:
    """A header value in an error: short, and only what can be seen."""
    return '"' + "".join(c if c.isprintable() else "?" for c in value[:100].decode("latin-1")) + '"'
