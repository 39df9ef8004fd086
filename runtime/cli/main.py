"""The `headrace` command. It knows names and help texts; each command's work is imported when it runs.

Exit codes: 0 done, 1 failed, 2 called in a way that cannot be right, 130 stopped with Ctrl-C.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated

import typer

from runtime.cli.problems import reported
from runtime.config import DEFAULT_PORT

Text = str | None
Many = list[str] | None

app = typer.Typer(
    name="headrace",
    help="Run open-weight language models on your own computer. Alone it opens the chat window, or a terminal chat.",
    no_args_is_help=False,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(
    name="bench",
    help="Measure how fast models run here, or against another server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(bench)

Ctx = Annotated[Text, typer.Option("--ctx", metavar="TOKENS", help="Context one chat can use; decided when left out.")]
Parallel = Annotated[Text, typer.Option("--parallel", metavar="N", help="Chats that are answered at the same time.")]
GpuLayers = Annotated[Text, typer.Option("--gpu-layers", metavar="auto|N", help="Layers to keep on the GPU.")]
KvType = Annotated[Text, typer.Option("--kv-type", metavar="TYPE", help="Number format of the KV cache: f16, q8_0 …")]
Threads = Annotated[Text, typer.Option("--threads", metavar="N", help="CPU threads; decided when left out.")]
FlashAttn = Annotated[Text, typer.Option("--flash-attn", metavar="auto|on|off", help="Flash attention.")]
Template = Annotated[Text, typer.Option("--template", metavar="NAME", help="Built-in chat template to use instead.")]
ApiKey = Annotated[Text, typer.Option("--api-key", metavar="KEY", envvar="HEADRACE_API_KEY", help="Key clients send.")]


@app.callback()
@reported
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        from runtime.cli.start import start as start_

        raise typer.Exit(start_(context.get_help))


@app.command()
@reported
def serve(
    model: Annotated[Text, typer.Option("--model", "-m", metavar="MODEL", help="Name or .gguf file.")] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[str, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = str(DEFAULT_PORT),
    ctx: Ctx = None,
    parallel: Parallel = None,
    gpu_layers: GpuLayers = None,
    kv_type: KvType = None,
    threads: Threads = None,
    flash_attn: FlashAttn = None,
    template: Template = None,
    api_key: ApiKey = None,
    allow_host: Annotated[
        Many, typer.Option("--allow-host", metavar="HOST", help="Host name clients may use; repeat for more.")
    ] = None,
    allow_origin: Annotated[
        Many, typer.Option("--allow-origin", metavar="ORIGIN", help="Web origin that may call; repeat for more.")
    ] = None,
    on_overflow: Annotated[
        str, typer.Option("--on-overflow", metavar="error|trim", help="What a chat longer than the context gets.")
    ] = "error",
    max_body: Annotated[
        Text, typer.Option("--max-body", metavar="SIZE", help="Largest request, such as 64MiB (32MiB).")
    ] = None,
    max_connections: Annotated[
        Text, typer.Option("--max-connections", metavar="N", help="Connections at a time (512).")
    ] = None,
    max_waiting: Annotated[
        Text, typer.Option("--max-waiting", metavar="N", help="Requests that may wait (256).")
    ] = None,
    receive_timeout: Annotated[
        Text, typer.Option("--receive-timeout", metavar="SECONDS", help="Longest time to send a request (30).")
    ] = None,
    keep_alive: Annotated[
        Text, typer.Option("--keep-alive", metavar="SECONDS", help="How long an idle connection stays (75).")
    ] = None,
) -> None:
    """Serve a model to OpenAI clients on this computer."""
    from runtime.cli.options import EngineTexts, ServiceTexts
    from runtime.cli.serve import run

    engine = EngineTexts(ctx, parallel, gpu_layers, kv_type, threads, flash_attn, template)
    service = ServiceTexts(
        host=host,
        port=port,
        api_key=api_key,
        allow_hosts=tuple(allow_host or ()),
        allow_origins=tuple(allow_origin or ()),
        on_overflow=on_overflow,
        max_body=max_body,
        max_connections=max_connections,
        max_waiting=max_waiting,
        receive_timeout=receive_timeout,
        keep_alive=keep_alive,
    )
    raise typer.Exit(run(model, engine, service))


@app.command()
@reported
def chat(
    model: Annotated[Text, typer.Argument(help="Name or .gguf file; the starter model when left out.")] = None,
    prompt: Annotated[
        Text, typer.Option("--prompt", "-p", metavar="TEXT", help="Ask once and print the reply; - reads stdin.")
    ] = None,
    system: Annotated[str, typer.Option("--system", metavar="TEXT", help="Tell the model who it is.")] = "",
    temperature: Annotated[
        Text, typer.Option("--temperature", metavar="T", help="0 always takes the likeliest.")
    ] = None,
    max_tokens: Annotated[Text, typer.Option("--max-tokens", metavar="N", help="Longest reply.")] = None,
    seed: Annotated[Text, typer.Option("--seed", metavar="N", help="The same seed draws the same reply.")] = None,
    url: Annotated[Text, typer.Option("--url", metavar="URL", help="Use the server at this address.")] = None,
    ctx: Ctx = None,
    gpu_layers: GpuLayers = None,
    kv_type: KvType = None,
    threads: Threads = None,
    flash_attn: FlashAttn = None,
    template: Template = None,
    api_key: ApiKey = None,
) -> None:
    """Talk to a model in the terminal."""
    from runtime.cli.options import EngineTexts
    from runtime.cli.talk import Wish, run

    settings = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    engine = EngineTexts(ctx, None, gpu_layers, kv_type, threads, flash_attn, template)
    raise typer.Exit(run(Wish(model, prompt, system, url, api_key, engine, settings)))


@app.command()
@reported
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    selftest: Annotated[bool, typer.Option("--selftest/--no-selftest", help="Let the engine decode a prompt.")] = True,
) -> None:
    """Show what a bug report needs: versions, processor, devices, memory, and whether the engine works."""
    from runtime.cli.doctor import run

    raise typer.Exit(run(as_json=as_json, selftest=selftest))


@app.command()
def version() -> None:
    """Show the versions of headrace and of what it runs on."""
    from runtime.bench.report import build_facts

    for name, number in build_facts().items():
        typer.echo(f"{name} {number}")


Json = Annotated[Text, typer.Option("--json", metavar="FILE", help="Also write the report to this file; - is stdout.")]
Pairs = Annotated[str, typer.Option("--pairs", metavar="N", help="Measurements of each; at least 6.")]
BenchModel = Annotated[Text, typer.Option("--model", "-m", metavar="MODEL", help="Name or .gguf file.")]


@bench.command("speed")
@reported
def bench_speed(
    model: BenchModel = None,
    pairs: Pairs = "15",
    json_file: Json = None,
    ctx: Ctx = None,
    gpu_layers: GpuLayers = None,
    kv_type: KvType = None,
    threads: Threads = None,
    flash_attn: FlashAttn = None,
) -> None:
    """Measure reading and writing speed and the first token of a model on this computer."""
    from runtime.cli.bench import speed
    from runtime.cli.options import EngineTexts

    speed(model, pairs, json_file, EngineTexts(ctx, None, gpu_layers, kv_type, threads, flash_attn))


@bench.command("compare")
@reported
def bench_compare(
    url: Annotated[str, typer.Argument(help="Address of the other server, such as http://127.0.0.1:8080.")],
    model_name: Annotated[Text, typer.Option("--model-name", metavar="NAME", help="Name its model answers to.")] = None,
    work: Annotated[
        str, typer.Option("--work", metavar="A,B", help="Of decode, prefill, mixed, burst.")
    ] = "decode,mixed",
    model: BenchModel = None,
    pairs: Pairs = "15",
    json_file: Json = None,
    ctx: Ctx = None,
    gpu_layers: GpuLayers = None,
    kv_type: KvType = None,
    threads: Threads = None,
    flash_attn: FlashAttn = None,
    their_key: Annotated[Text, typer.Option("--api-key", metavar="KEY", help="Key of the other server.")] = None,
) -> None:
    """Run the same work on our service and on another OpenAI-compatible server, in turns."""
    from runtime.cli.bench import Peer, compare
    from runtime.cli.options import EngineTexts

    engine = EngineTexts(ctx, None, gpu_layers, kv_type, threads, flash_attn)
    compare(Peer(url, model_name, their_key), work, model, pairs, json_file, engine)


def main() -> None:
    """Entry point of the `headrace` script."""
    _never_fail_on_a_letter()
    app()


def _never_fail_on_a_letter() -> None:
    """Output the terminal cannot show becomes a replacement; pipes and files are UTF-8 on every platform."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError, ValueError):
                stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
    if isinstance(sys.stdin, TextIOWrapper):
        with suppress(OSError, ValueError):
            sys.stdin.reconfigure(encoding=None if sys.stdin.isatty() else "utf-8", errors="replace")


if __name__ == "__main__":
    main()
