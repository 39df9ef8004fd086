"""Errors as clients see them: one JSON shape, the status and headers that go with it, and no path of this computer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from runtime.config import ServiceOptions
from runtime.errors import ErrorInfo, HeadraceError

JSON_TYPE = "application/json"
# Two folders or more: "/v1" and "and/or" are not paths of a file system.
_POSIX_PATH = re.compile(r"(?<![\w/.:])(?:/[^\s/\"'`:,;()<>]+){2,}")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[^\s\\\"'`:,;()<>]+\\)*[^\s\\\"'`:,;()<>]*")
# What comes from the model process may quote files; our own words about a request name routes and fields.
_QUOTES_FILES = 500


class Problems:
    """Makes error bodies; knows what must not be in them."""

    def __init__(self, options: ServiceOptions) -> None:
        path = Path(options.model_path)
        secrets = {str(path): path.name, str(path.resolve()): path.name, str(Path.home()): "~"}
        # The longest first: a home folder is the beginning of the path of a model in it.
        self._secrets = sorted(
            ((secret, shown) for secret, shown in secrets.items() if len(secret) > 1), key=lambda pair: -len(pair[0])
        )

    def body(self, info: ErrorInfo) -> dict[str, Any]:
        message = self.hide(info.message, strict=info.status >= _QUOTES_FILES or info.type == "model_error")
        said = {"message": message, "type": info.type, "param": info.param, "code": info.code}
        return {"error": {**info.numbers, **said}}

    def response(self, error: HeadraceError) -> Response:
        info = error.info()
        status = info.status if 400 <= info.status <= 599 else 500
        return json_response(self.body(info), status, _headers(info))

    def event(self, info: ErrorInfo) -> bytes:
        """The error as the last event of a stream."""
        return b"data: " + msgspec.json.encode(self.body(info)) + b"\n\n"

    def hide(self, text: str, *, strict: bool) -> str:
        """`text` without this computer's folders as far as we know them; `strict` hides whatever looks like a path."""
        for secret, shown in self._secrets:
            text = text.replace(secret, shown)
        if not strict:
            return text
        text = _WINDOWS_PATH.sub(lambda match: match[0].rpartition("\\")[2], text)
        return _POSIX_PATH.sub(lambda match: match[0].rpartition("/")[2], text)


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, JSON_TYPE)


def _headers(info: ErrorInfo) -> dict[str, str]:
    headers = {}
    if "retry_after_s" in info.numbers:
        headers["Retry-After"] = str(max(0, info.numbers["retry_after_s"]))
    if info.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
