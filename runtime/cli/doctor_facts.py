"""What `headrace doctor` finds out. Only children load libllama, so a broken build is a fact here, not a crash."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.shelf import Shelved, listing
from runtime import paths
from runtime.bench import machine
from runtime.bench.report import version_of
from runtime.commands import argv

PROBE_S = 60.0
SELFTEST_S = 180.0
ERROR_LINES = 12


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the report shows, in its order; ready for JSON. An "error" entry stands where a part found nothing."""

    versions: dict[str, str]
    machine: dict[str, Any]
    engine: dict[str, Any]
    nvidia: dict[str, Any]
    platform: dict[str, str]
    models: dict[str, Any]
    selftest: dict[str, Any] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        return "error" not in self.engine and self.selftest.get("ok") is not False


def gather(*, selftest: bool) -> Facts:
    """Takes seconds: two children are started, and one of them decodes a prompt."""
    engine = child_answer(argv("probe"), PROBE_S)
    return Facts(
        versions=_versions(engine),
        machine=asdict(machine.describe()),
        engine=engine,
        nvidia=_nvidia(),
        platform=_platform(),
        models=_models(),
        selftest=_selftest() if selftest else {"skipped": True},
    )


def child_answer(command: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """The JSON object a child prints, or {"error": …} that says how it ended instead."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return {"error": f"did not answer within {timeout_s:.0f} s"}
    except OSError as error:
        return {"error": f"could not be started: {error.strerror or error}"}
    with suppress(ValueError):
        said = json.loads(done.stdout)
        if isinstance(said, dict):
            return said
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()[-ERROR_LINES:]
    return {"error": "\n".join([f"ended with {how} and no answer", *lines])}


def _versions(engine: Mapping[str, Any]) -> dict[str, str]:
    llama = f"{engine.get('llama_cpp', 'unknown')} ({engine.get('commit', 'unknown')})"
    binding = str(engine.get("binding") or version_of("llama-cpp-python"))
    return {"headrace": version_of("headrace"), "llama-cpp-python": binding, "llama.cpp": llama}


def _nvidia() -> dict[str, Any]:
    """NVIDIA's own word on its devices; {} without its library."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        # pynvml has an error class for each way a driver can be missing, and none of them matters here.
        return {}
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return {
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "cuda": pynvml.nvmlSystemGetCudaDriverVersion() / 1000,
            "devices": [_nvidia_device(handle) for handle in handles],
        }
    except Exception as error:
        return {"error": str(error)}
    finally:
        pynvml.nvmlShutdown()


def _nvidia_device(handle: Any) -> dict[str, Any]:
    import pynvml

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {"name": str(pynvml.nvmlDeviceGetName(handle)), "free_bytes": memory.free, "total_bytes": memory.total}


def _platform() -> dict[str, str]:
    from runtime.platform import describe

    return describe()


def _models() -> dict[str, Any]:
    folder = paths.models_home()
    return {"folder": shown_path(folder), "files": [_model(entry) for entry in listing(folder)]}


def _model(entry: Shelved) -> dict[str, Any]:
    if entry.info is None:
        return {"name": entry.name, "error": str(entry.error)}
    return {
        "name": entry.name,
        "architecture": entry.info.architecture,
        "parameters": entry.info.n_params,
        "size_bytes": entry.info.size_bytes,
        "starter": entry.path == paths.starter_model_path(),
    }


def _selftest() -> dict[str, Any]:
    starter = paths.starter_model_path()
    if not starter.is_file():
        answer = child_answer(argv("selftest"), SELFTEST_S)
        return {**answer, "note": "the starter model is not on this computer, so no prompt was decoded"}
    return child_answer(argv("selftest", "--model", str(starter)), SELFTEST_S)


def shown_path(path: Path) -> str:
    """The path without the name of its user."""
    return scrubbed(str(path))


def scrubbed(text: str) -> str:
    """Text that may be pasted into a public report: the home folder becomes ~, our own folder is named, not shown."""
    data, home = str(paths.data_home()), str(Path.home())
    if not data.startswith(home):
        text = text.replace(data, "HEADRACE_HOME")
    return text.replace(home, "~") if len(home) > 1 else text
