"""What was typed on the command line, checked and turned into the frozen options that everything else takes.

Every value that cannot be right is refused in one sentence that names the option, what was typed and what is possible.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from typing import Final

from models import limits
from models.fit import KV_TYPES
from runtime.cli.problems import UsageProblem
from runtime.config import DEFAULT_PORT, EngineOptions, ServiceOptions

FLASH: Final = ("auto", "on", "off")
OVERFLOW: Final = ("error", "trim")
CTX_MAX: Final = 16 * 1024 * 1024
# llama.cpp refuses a context with more than 256 sequences; forks and one temporary need their share.
PARALLEL_MAX: Final = 128
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
UNITS = {"": 1, "k": limits.KIB, "m": limits.MIB, "g": limits.GIB}


@dataclass(frozen=True, slots=True)
class EngineTexts:
    """The engine's options as typed; None where nothing was."""

    ctx: str | None = None
    parallel: str | None = None
    gpu_layers: str | None = None
    kv_type: str | None = None
    threads: str | None = None
    flash_attn: str | None = None
    template: str | None = None


@dataclass(frozen=True, slots=True)
class ServiceTexts:
    """The service's options as typed."""

    host: str = "127.0.0.1"
    port: str = str(DEFAULT_PORT)
    api_key: str | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    on_overflow: str = "error"
    max_body: str | None = None
    max_connections: str | None = None
    max_waiting: str | None = None
    receive_timeout: str | None = None
    keep_alive: str | None = None


def engine_options(model_path: str, texts: EngineTexts) -> EngineOptions:
    defaults = EngineOptions(model_path)
    return EngineOptions(
        model_path,
        ctx=None if texts.ctx is None else whole("--ctx", texts.ctx, 16, CTX_MAX, " of tokens"),
        parallel=defaults.parallel
        if texts.parallel is None
        else whole("--parallel", texts.parallel, 1, PARALLEL_MAX, " of chats"),
        gpu_layers=_gpu_layers(texts.gpu_layers),
        kv_type=choice("--kv-type", texts.kv_type or defaults.kv_type, tuple(KV_TYPES)),
        threads=None if texts.threads is None else whole("--threads", texts.threads, 1, 512),
        flash_attn=choice("--flash-attn", texts.flash_attn or defaults.flash_attn, FLASH),
        template=texts.template,
    )


def service_options(model: str, model_path: str, texts: ServiceTexts) -> ServiceOptions:
    defaults = ServiceOptions(model, model_path)
    key = texts.api_key or None
    _check_key(key)
    _check_host(texts.host, key)
    return ServiceOptions(
        model,
        model_path,
        host=texts.host,
        port=whole("--port", texts.port, 0, 65535),
        api_key=key,
        allow_hosts=tuple(_allowed_host(host) for host in texts.allow_hosts),
        allow_origins=tuple(_allowed_origin(origin) for origin in texts.allow_origins),
        on_overflow=choice("--on-overflow", texts.on_overflow, OVERFLOW),
        body_bytes=defaults.body_bytes
        if texts.max_body is None
        else size("--max-body", texts.max_body, limits.BODY_BYTES_BOUND),
        connections=defaults.connections
        if texts.max_connections is None
        else whole("--max-connections", texts.max_connections, 1, 65535),
        waiting=defaults.waiting
        if texts.max_waiting is None
        else whole("--max-waiting", texts.max_waiting, 0, 65535, " of requests"),
        receive_s=defaults.receive_s
        if texts.receive_timeout is None
        else seconds("--receive-timeout", texts.receive_timeout),
        keep_alive_s=defaults.keep_alive_s if texts.keep_alive is None else seconds("--keep-alive", texts.keep_alive),
    )


def whole(option: str, text: str, low: int, high: int, of: str = "") -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise UsageProblem(f"{option} takes a whole number{of} from {low} to {high}, not {text!r}")
    return value


def choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise UsageProblem(f"{option} is one of {', '.join(choices)}, not {text!r}")
    return text


def size(option: str, text: str, bound: int) -> int:
    """Bytes from "32MiB", "1g" or "4096"."""
    match = SIZE.fullmatch(text.strip())
    value = int(float(match[1]) * UNITS[match[2].lower()]) if match else 0
    if not 1 <= value <= bound:
        raise UsageProblem(f"{option} takes a size such as 64MiB, at most {bound // limits.MIB} MiB, not {text!r}")
    return value


def seconds(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.1 <= value <= 86_400:
        raise UsageProblem(f"{option} takes seconds from 0.1 to 86400, not {text!r}")
    return value


def _gpu_layers(text: str | None) -> int:
    if text is None or text == "auto":
        return -1
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 100_000:
        raise UsageProblem(f"--gpu-layers takes auto or a number of layers from 0 up, not {text!r}")
    return value


def _check_key(key: str | None) -> None:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageProblem("--api-key must be printable ASCII without spaces: HTTP cannot carry anything else")


def _check_host(host: str, key: str | None) -> None:
    if not key and not _is_loopback(host):
        raise UsageProblem(
            f"--host {host} would let other computers in without a key: add --api-key KEY "
            f"(or set HEADRACE_API_KEY), or leave --host out to serve this computer only"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _allowed_host(text: str) -> str:
    if not text or "/" in text or " " in text or "*" in text:
        raise UsageProblem(
            f"--allow-host takes an exact name as browsers send it, such as box.lan or box.lan:8033, not {text!r}"
        )
    return text


def _allowed_origin(text: str) -> str:
    if "://" not in text or "*" in text or text.endswith("/"):
        raise UsageProblem(f"--allow-origin takes an exact origin such as https://chat.example, not {text!r}")
    return text
