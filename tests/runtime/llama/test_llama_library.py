"""The door to the binding, its log, its self-test and what it finds on this machine."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runtime.commands import argv
from runtime.llama import layout, library, log, selftest, threads
from runtime.llama.devices import backends, devices, supports_gpu_offload
from runtime.llama.errors import BindingMissing, StructMismatch
from runtime.llama.resolved import read


@pytest.fixture
def fresh_lib():
    """`lib` unloaded for the test and loaded again after it."""
    library.lib.cache_clear()
    yield library.lib
    library.lib.cache_clear()
    library.lib()


def child(*arguments: str) -> tuple[int, dict]:
    done = subprocess.run(argv(*arguments), capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


def test_only_the_ctypes_layer_is_imported():
    code = (
        "import sys; from runtime.llama.library import lib; lib(); "
        "print(sorted({'llama_cpp.llama', 'diskcache', 'jinja2', 'fastapi', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_another_version_is_refused_with_the_way_out(fresh_lib, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.3.99")
    with pytest.raises(BindingMissing, match=r"0\.3\.99 is installed, 0\.3\.36 is needed: run python3 packaging/start"):
        fresh_lib()


def test_absent_binding_is_named_with_the_way_out(fresh_lib, monkeypatch):
    monkeypatch.setattr(library, "PACKAGE", "llama_cpp_is_not_here")
    with pytest.raises(
        BindingMissing, match=r"0\.3\.36 is not installed: run python3 packaging/start\.py --setup-only"
    ):
        fresh_lib()


def test_a_library_that_cannot_be_loaded_is_named(fresh_lib, monkeypatch):
    def broken(_name: str) -> None:
        raise RuntimeError("libstdc++.so.6: version `GLIBCXX_3.4.32' not found")

    monkeypatch.setattr(library.importlib, "import_module", broken)
    with pytest.raises(BindingMissing, match="GLIBCXX"):
        fresh_lib()


def test_source_tree_states_its_version(tmp_path, monkeypatch):
    def absent(_name: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", absent)
    (tmp_path / "__init__.py").write_text('from .x import *\n\n__version__ = "0.3.36"\n')
    assert library._installed_version(tmp_path) == "0.3.36"
    assert library._installed_version(tmp_path / "nowhere") == "of an unknown version"


def test_build_info_is_one_line():
    text = library.build_info()
    assert "llama-cpp-python 0.3.36, llama.cpp " in text
    assert "CPU" in text
    assert "\n" not in text


# log


def test_lines_are_joined_from_pieces_and_captured():
    recorder = log.Recorder()
    recorder.write(log.INFO, "before\n")
    with recorder.captured() as lines:
        recorder.write(log.INFO, "loading ")
        for _ in range(3):
            recorder.write(log.CONTINUED, ".")
        recorder.write(log.ERROR, "load: it failed\nload: badly\n")
        recorder.write(log.DEBUG, "noise\n")
        recorder.write(log.CONTINUED, "more noise\n")
    recorder.write(log.WARN, "after\n")
    assert [(line.level, line.text) for line in lines] == [
        (log.INFO, "loading ..."),
        (log.ERROR, "load: it failed"),
        (log.ERROR, "load: badly"),
    ]
    assert [line.text for line in recorder.kept] == ["before", "loading ...", "load: it failed", "load: badly", "after"]


def test_log_is_bounded():
    recorder = log.Recorder()
    for i in range(3 * log.LINES_KEPT):
        recorder.write(log.INFO, f"{i}\n")
    recorder.write(log.INFO, "x" * 100_000)
    recorder.write(log.INFO, "\n")
    assert len(recorder.kept) == log.LINES_KEPT
    assert len(recorder.kept[-1].text) == log.LINE_CHARACTERS


def test_reason_prefers_errors_and_says_each_once():
    lines = [
        log.Line(log.INFO, "load: fine"),
        log.Line(log.WARN, "check: odd"),
        log.Line(log.ERROR, "llama_kv_cache: no room"),
        log.Line(log.ERROR, "init: no room"),
    ]
    assert log.reason(lines, "nothing") == "no room"
    assert log.reason(lines[:2], "nothing") == "odd"
    assert log.reason(lines[:1], "nothing") == "nothing"


def test_callback_takes_any_bytes_from_any_thread(caplog):
    library.lib()
    with log.captured() as lines, caplog.at_level(logging.DEBUG, logger="runtime.llama.log"):
        thread = threading.Thread(target=lambda: log._callback(log.WARN, b"odd \xff byte\n", None))
        thread.start()
        thread.join()
    assert [line.text for line in lines] == ["odd \N{REPLACEMENT CHARACTER} byte"]
    assert "odd" in caplog.text


def test_resolved_values_are_read_from_the_log():
    texts = [
        "llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells",
        "llama_kv_cache:      CUDA0 KV buffer size =    15.00 MiB",
        "llama_kv_cache:        CPU KV buffer size =     1.50 MiB",
        "llama_kv_cache: size =   16.50 MiB (  1536 cells,  15 layers,  4/1 seqs), K (f16): 8.25 MiB",
        "sched_reserve:      CUDA0 compute buffer size =    19.77 MiB",
        "resolve_fused_ops: Flash Attention not supported, set to disabled",
    ]
    found = read("auto", [log.Line(log.INFO, text) for text in texts])
    assert (found.flash_attn, found.swa_cells) == ("off", 1536)
    assert found.kv_bytes == round(16.5 * 2**20) == sum(n for (_, kind), n in found.buffers.items() if kind == "KV")
    assert found.compute_bytes == round(19.77 * 2**20)
    assert read("auto", []).flash_attn == "on"


# self-test


def test_binding_is_as_we_rely_on():
    selftest.check_binding()


def test_wrong_offset_is_a_struct_mismatch(monkeypatch):
    """Planted fault: a field before type_k is narrower than in libllama."""
    real = library.lib().llama_context_params
    fields = [(n, ctypes.c_int16 if n == "yarn_orig_ctx" else t) for n, t in real._fields_]
    fields = [(n, ctypes.c_int64 if n == "type_k" else t) for n, t in fields]
    planted = type("llama_context_params", (ctypes.Structure,), {"_fields_": fields})
    monkeypatch.setattr(library.lib(), "llama_context_params", planted)
    with pytest.raises(StructMismatch, match="llama_context_params"):
        selftest.check_binding()


def test_swapped_fields_of_one_size_are_a_struct_mismatch(monkeypatch):
    """Planted fault: the size is right, two fields changed places."""
    real = library.lib().llama_batch
    fields = list(real._fields_)
    fields[1], fields[3] = fields[3], fields[1]
    planted = type("llama_batch", (ctypes.Structure,), {"_fields_": fields})
    monkeypatch.setattr(library.lib(), "llama_batch", planted)
    with pytest.raises(StructMismatch, match=r"llama_batch\.token is at 24 in the binding, at 8 in libllama"):
        selftest.check_binding()


def test_a_library_with_other_defaults_is_a_struct_mismatch(monkeypatch):
    """Planted fault: binding and table agree, the library itself lays its struct out otherwise."""
    values = library.lib().llama_context_default_params()
    values.type_k = 30
    monkeypatch.setattr(library.lib(), "llama_context_default_params", lambda: values)
    with pytest.raises(StructMismatch, match="type_k = 30, 1 was expected"):
        selftest.check_binding()


def test_missing_symbol_is_a_struct_mismatch(monkeypatch):
    monkeypatch.setattr(layout, "LLAMA_FUNCTIONS", (*layout.LLAMA_FUNCTIONS, "llama_no_such_function"))
    with pytest.raises(StructMismatch, match="no function llama_no_such_function"):
        selftest.check_binding()


def test_every_function_the_package_calls_is_checked():
    """Planted fault: a call nobody lists would be met by a user, not by the self-test."""
    called = set()
    for path in Path(layout.__file__).parent.glob("*.py"):
        source = path.read_text("utf-8")
        called |= set(re.findall(r"(?:\bL|lib\(\)|module)\.(llama_\w+)", source))
        called |= set(re.findall(r'raw\(\s*"(llama_\w+)"', source))
    functions = {name for name in called if hasattr(library.lib()._lib, name)}
    assert len(functions) > 70
    assert functions <= set(layout.LLAMA_FUNCTIONS)


def test_selftest_child_without_a_model():
    code, answer = child("selftest")
    assert (code, answer["ok"]) == (0, True)
    assert "llama.cpp" in answer["build"]


@pytest.mark.weights
def test_selftest_child_decodes(starter_model):
    code, answer = child("selftest", "--model", str(starter_model), "--threads", "1")
    assert (code, answer["ok"]) == (0, True), answer
    assert answer["model"]["prompt_tokens_per_s"] > 0
    assert answer["model"]["tokens_per_s"] > 0


def test_selftest_child_fails_with_the_reason(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF rubbish")
    code, answer = child("selftest", "--model", str(tmp_path / "x.gguf"))
    assert (code, answer["ok"], answer["kind"]) == (1, False, "LoadFailed")
    assert "x.gguf was not loaded" in answer["error"]


@pytest.mark.weights
def test_numbers_that_are_not_finite_fail_the_selftest(starter_model, monkeypatch):
    """Planted fault: one NaN among the logits, as a miscompiled kernel gives."""
    from runtime.llama.context import Context

    real = Context.logits

    def poisoned(self, n_outputs):
        rows = real(self, n_outputs).copy()
        rows[0, 77] = float("nan")
        return rows

    monkeypatch.setattr(Context, "logits", poisoned)
    result = selftest.run(str(starter_model), threads=1)
    assert not result["ok"]
    assert "not finite" in result["error"]


# probe, devices, threads


def test_probe_child_reports_the_machine():
    code, answer = child("probe")
    assert code == 0
    assert answer["binding"] == library.VERSION
    assert answer["default_threads"] >= 1
    assert {"cpu"} <= {device["kind"] for device in answer["devices"]}
    assert all(device["total_bytes"] >= device["free_bytes"] >= 0 for device in answer["devices"])


@pytest.mark.weights
def test_probe_child_plans_a_context_without_reading_weights(starter_model):
    code, answer = child("probe", "--model", str(starter_model), "--ctx", "1024", "--sequences", "4")
    assert code == 0, answer
    assert answer["plan"]["kv_bytes"] == 1024 * 30 * 2 * 3 * 64 * 2
    assert answer["plan"]["compute_bytes"] > 2**20


def test_probe_child_fails_with_json(tmp_path):
    code, answer = child("probe", "--model", str(tmp_path / "absent.gguf"))
    assert code == 1
    assert "absent.gguf was not loaded" in answer["error"]


def test_devices_have_names_kinds_and_memory():
    found = devices()
    cpu = next(device for device in found if device.kind == "cpu")
    assert cpu.total_bytes > 2**28
    assert cpu.backend in backends()
    assert supports_gpu_offload() == any(device.kind in ("gpu", "igpu") for device in found)


def test_threads_are_cores_not_hyperthreads():
    siblings = {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5"}
    assert threads.count_cores({0, 1, 4, 5}, siblings) == 2
    assert threads.count_cores({0, 4}, siblings) == 1
    assert threads.count_cores({8, 9}, siblings) == 2


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("max 100000\n", None), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("", None), ("7", None)],
)
def test_container_quota(text, cpus):
    assert threads.parse_quota(text) == cpus


def test_default_threads_are_within_what_the_process_may_use():
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert 1 <= threads.default_threads() <= allowed
