"""`headrace doctor`: the facts as plain text to paste into a bug report, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from runtime.cli.doctor_facts import Facts, gather, scrubbed
from runtime.cli.problems import FAILURE

GIB = 2**30
LABEL = 18


def run(*, as_json: bool, selftest: bool) -> int:
    """The exit code: 1 when the engine cannot be used."""
    facts = gather(selftest=selftest)
    text = json.dumps({"ok": facts.works, **asdict(facts)}, indent=2) if as_json else "\n".join(lines(facts))
    sys.stdout.write(scrubbed(text) + "\n")
    return 0 if facts.works else FAILURE


def lines(facts: Facts) -> Iterator[str]:
    for name, value in facts.versions.items():
        yield _line(name, value)
    yield from _machine(facts.machine)
    yield from _engine(facts.engine)
    yield from _nvidia(facts.nvidia)
    yield from _models(facts.models)
    yield ""
    for index, (name, value) in enumerate(facts.platform.items()):
        yield _line("" if index else "platform", f"{name}: {value}")
    yield ""
    yield from _selftest(facts.selftest)


def _machine(machine: Mapping[str, Any]) -> Iterator[str]:
    yield _line("system", machine["os"])
    yield _line("python", machine["python"])
    yield ""
    yield _line("processor", machine["cpu"])
    yield _line("instruction sets", " ".join(machine["flags"]) or "unknown")
    yield _line("cores", f"{machine['cores']} physical, {machine['usable']} usable by this process")
    yield _line("memory", _memory(machine["memory_free"], machine["memory_total"]))


def _engine(engine: Mapping[str, Any]) -> Iterator[str]:
    if "error" in engine:
        yield _line("engine", f"NOT USABLE: {engine['error']}")
        return
    yield _line("threads chosen", engine.get("default_threads", "unknown"))
    yield ""
    yield _line("engine built for", _system_info(engine.get("system_info")))
    yield _line("backends", ", ".join(engine.get("backends") or ()) or "none")
    for device in engine.get("devices") or ():
        memory = _memory(device["free_bytes"], device["total_bytes"])
        yield _line(f"device {device['name']}", f"{device['description']} ({device['kind']}), {memory}")


def _system_info(text: str | None) -> str:
    """llama.cpp's line with what is on, without what it repeats."""
    return (text or "unknown").replace(" = 1", "").rstrip(" |")


def _nvidia(nvidia: Mapping[str, Any]) -> Iterator[str]:
    if not nvidia:
        yield _line("NVIDIA driver", "none found")
    elif "error" in nvidia:
        yield _line("NVIDIA driver", f"does not answer: {nvidia['error']}")
    else:
        yield _line("NVIDIA driver", f"{nvidia['driver']}, CUDA {nvidia['cuda']:g}")
        for device in nvidia["devices"]:
            yield _line("", f"{device['name']}, {_memory(device['free_bytes'], device['total_bytes'])}")


def _models(models: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield _line("models in", models["folder"])
    for model in models["files"]:
        if "error" in model:
            yield _line("", f"{model['name']}: CANNOT BE LOADED, {model['error']}")
        else:
            size = f"{model['parameters'] / 1e6:,.0f} M parameters, {model['size_bytes'] / GIB:.2f} GiB"
            yield _line("", f"{model['name']}: {model['architecture']}, {size}")
    if not models["files"]:
        yield _line("", "none yet")


def _selftest(selftest: Mapping[str, Any]) -> Iterator[str]:
    if selftest.get("skipped"):
        yield _line("self-test", "skipped")
        return
    if selftest.get("ok"):
        model = selftest.get("model") or {}
        speed = f", {model['prompt_tokens_per_s']:g} tok/s read, {model['tokens_per_s']:g} written" if model else ""
        yield _line("self-test", f"passed{speed}")
    else:
        yield _line("self-test", f"FAILED: {selftest.get('error', 'no reason given')}")
        yield _line("", "run `python3 packaging/start.py --setup-only` to build the engine for this computer")
    if note := selftest.get("note"):
        yield _line("", note)


def _memory(free: int, total: int) -> str:
    return f"{free / GIB:.1f} GiB free of {total / GIB:.1f} GiB"


def _line(label: str, value: object) -> str:
    """Lines after the first of a long value stay under it."""
    text = str(value).replace("\n", "\n" + " " * LABEL)
    return f"{label:<{LABEL}}{text}".rstrip()
