"""Configuration, read once at the edge (the command line) and passed down frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

from models import limits

DEFAULT_PORT = 8033


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a worker loads and runs its model. None or -1 means: decide from the model and this machine.

    `ctx` is the context one chat can use, in tokens; running chats share that pool of KV cells. `parallel` is how many
    sequences decode together. `gpu_layers` -1 is auto. `kv_type` is a ggml type name ("f16", "q8_0").
    `flash_attn` is "auto", "on" or "off". `step_target_ms` bounds how long one step may hold up running chats while
    a prompt is prefilled. `template` names a built-in template, `template_source` is the text of one and wins.
    `tensor_overrides` are (regular expression of tensor names, device name); `raw` are (name, value) of llama.cpp's own
    model and context parameters, checked against models/registry/raw_options.py.
    """

    model_path: str
    ctx: int | None = None
    parallel: int = 8
    gpu_layers: int = -1
    kv_type: str = "f16"
    threads: int | None = None
    flash_attn: str = "auto"
    n_ubatch: int = 512
    step_target_ms: int = 250
    template: str | None = None
    template_source: str | None = None
    tensor_overrides: tuple[tuple[str, str], ...] = ()
    raw: tuple[tuple[str, str], ...] = ()
    chaos: str | None = None


@dataclass(frozen=True, slots=True)
class WatchdogOptions:
    """When a silent worker counts as hung. Times in seconds.

    A worker answers pings between steps, so `hang_s` must exceed the longest step; the supervisor raises it to twenty
    times the longest step it has seen.
    """

    ping_s: float = 5.0
    hang_s: float = 60.0
    load_s: float = 180.0
    backoff_s: float = 0.5
    crashes: int = 3
    crash_window_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The HTTP side. `model` is what the user named; `model_path` the file it was resolved to.

    `models_max` bounds how many models are loaded at a time, None: memory decides. A model nobody used for
    `unload_after_s` is unloaded, None: never. With `strict_names` a name that is not on the shelf is an error, else the
    main model answers. `owner_key` opens every route to programs that read the discovery file. A service that another
    program started ends after `idle_exit_s` without work, None: never.
    """

    model: str
    model_path: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_key: str | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    on_overflow: str = "error"
    body_bytes: int = limits.BODY_BYTES
    receive_s: float = limits.RECEIVE_S
    keep_alive_s: float = limits.KEEP_ALIVE_S
    connections: int = limits.CONNECTIONS
    waiting: int = limits.WAITING_PER_MODEL
    models_max: int | None = None
    unload_after_s: float | None = 3600.0
    strict_names: bool = False
    owner_key: str | None = None
    idle_exit_s: float | None = None
    watchdog: WatchdogOptions = field(default_factory=WatchdogOptions)
