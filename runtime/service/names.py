"""What the service calls itself, its model and its replies."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import secrets

from runtime.config import ServiceOptions
from runtime.frames import Ready

PROGRAM = "headrace"


def version() -> str:
    try:
        return importlib.metadata.version(PROGRAM)
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def alias(options: ServiceOptions) -> str:
    """The model's name in replies: what the user named it, without folders when that was a file."""
    name = options.model
    if name.endswith(".gguf") or name.startswith(("/", ".", "~")) or "\\" in name:
        name = re.split(r"[/\\]", name)[-1].removesuffix(".gguf")
    return name or "model"


def fingerprint(facts: Ready | None) -> str:
    """Changes when the same seed may give another text: with our version and the build of llama.cpp."""
    build = facts.build if facts is not None else ""
    return "fp_" + hashlib.blake2s(f"{version()} {build}".encode(), digest_size=5).hexdigest()


def reply_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(12)}"
