"""A request's body: read within a byte limit while it comes in, then parsed into one JSON object of bounded depth."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.types import Receive

from models import limits
from runtime.errors import BodyTooLarge, InvalidRequest

# Editors cut text by UTF-16 units and so send half of an emoji; every other escape passes through as it is.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
_CONTAINERS = {dict, list}
_BOM = b"\xef\xbb\xbf"


class ClientGone(Exception):
    """The connection ended before the request had arrived; there is nobody to answer."""


async def read(receive: Receive, declared: bytes | None, max_bytes: int) -> bytes:
    """The whole body. `declared` is the Content-Length header. Raises BodyTooLarge before it is in memory."""
    if declared is not None and declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(int(declared), max_bytes)
    parts: list[bytes] = []
    n_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        n_bytes += len(parts[-1])
        if n_bytes > max_bytes:
            raise _too_large(n_bytes, max_bytes)
        if not message.get("more_body", False):
            return b"".join(parts)


def parse(raw: bytes) -> dict[str, Any]:
    """One JSON object. Raises InvalidRequest with the place where it stops being one."""
    raw = raw.removeprefix(_BOM)
    try:
        body = _decode(raw)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"the body is not JSON: {error}. Send one JSON object in UTF-8") from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"the body is a JSON {_kind(body)}; send one JSON object")
    _check_depth(raw, body)
    return body


def _decode(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        if b"\\ud" not in raw and b"\\uD" not in raw:
            raise
        return msgspec.json.decode(_ESCAPES.sub(lambda match: rb"\ufffd" if match[1] else match[0], raw))


def _check_depth(raw: bytes, body: dict[str, Any]) -> None:
    if raw.count(b"[") + raw.count(b"{") <= limits.JSON_DEPTH:
        return
    level: list[Any] = [body]
    for _ in range(limits.JSON_DEPTH):
        level = [child for container in level for child in _containers(container)]
        if not level:
            return
    raise _too_deep()


def _containers(container: Any) -> list[Any]:
    values = container.values() if type(container) is dict else container
    # Asking for the types alone stays in C: an array may hold millions of numbers.
    if _CONTAINERS.isdisjoint(map(type, values)):
        return []
    return [value for value in values if type(value) in _CONTAINERS]


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"the body nests more than {limits.JSON_DEPTH} objects and arrays; send a flatter one")


def _too_large(n_bytes: int, max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body has {n_bytes} bytes or more, {max_bytes} are allowed; send less or serve with a larger --max-body",
        numbers={"max_bytes": max_bytes},
    )


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "number"
