"""Who may come in: hosts, origins, keys, sizes; on every route, before anything else happens."""

from __future__ import annotations

from typing import Any

import pytest
from asgi_call import HOST, JSON, AsgiCall, call
from fakes import FakeBackend
from fastapi.routing import APIRoute
from service_bench import CHAT, OPTIONS, TEXT, USER, LiveServer, application, run, status_of

from models import limits
from runtime.service import app as app_module
from runtime.service.doors import CannotServe, doors

KEY = "correct-horse-battery"


def visit(app: Any, method: str, path: str, *headers: tuple[bytes, bytes], **how: Any) -> AsgiCall:
    answered: list[AsgiCall] = []

    async def body() -> None:
        answered.append(await call(app, method, path, {"messages": USER, "prompt": "x"}, headers=headers, **how))

    run(body)
    return answered[0]


# Hosts

ALLOWED_HOSTS = [b"127.0.0.1:8033", b"localhost:8033", b"LocalHost:8033", b"[::1]:8033"]
FOREIGN_HOSTS = [
    b"",
    b"127.0.0.1",
    b"localhost",
    b"localhost:",
    b"localhost:80",
    b"localhost:80330",
    b"localhost:8033.evil.com",
    b"127.0.0.1.evil.com:8033",
    b"127.0.0.1:8033.evil.com",
    b"evil.com",
    b"evil.com:8033",
    b"evil.com#127.0.0.1:8033",
    b"evil.com/127.0.0.1:8033",
    b"127.0.0.1:8033@evil.com",
    b"evil.com@127.0.0.1:8033",
    b"localhost.:8033",
    b"LOCALHOST.:8033",
    b"xlocalhost:8033",
    b"localhost.localdomain:8033",
    b"127.0.0.2:8033",
    b"127.1:8033",
    b"0.0.0.0:8033",
    b"2130706433:8033",
    b"0x7f.0.0.1:8033",
    b"[::]:8033",
    b"[::ffff:127.0.0.1]:8033",
    b"::1:8033",
    b"192.168.1.5:8033",
    b"box.local:8033",
    b"box.internal:8033",
    b" localhost:8033",
    b"localhost:8033 ",
    b"localhost:8033,evil.com",
    b"localhost:8033?evil",
    b"localhost:8033/health?",
    b"127.0.0.1:8033\\evil.com",
]
PATHS = [("GET", "/health"), ("GET", "/"), ("POST", CHAT), ("GET", "/nope"), ("OPTIONS", CHAT), ("GET", "/metrics")]


@pytest.mark.parametrize("host", ALLOWED_HOSTS)
def test_our_own_names_come_in(host: bytes) -> None:
    assert visit(application(FakeBackend()), "GET", "/health", (b"host", host)).status == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_foreign_hosts_are_refused_on_every_route(host: bytes) -> None:
    backend = FakeBackend()
    app = application(backend)
    for method, path in PATHS:
        assert visit(app, method, path, (b"host", host), JSON).status == 403
    assert backend.requests == []


@pytest.mark.parametrize("hosts", [[], [b"localhost:8033", b"evil.com"], [b"localhost:8033"] * 2])
def test_there_is_exactly_one_host(hosts: list[bytes]) -> None:
    headers = [(b"host", host) for host in hosts]
    assert visit(application(FakeBackend()), "GET", "/health", *headers).status == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [(b"box.lan:8033", 200), (b"box.lan", 200), (b"gate.lan:443", 200), (b"gate.lan", 403), (b"xbox.lan", 403)],
)
def test_allowed_hosts_are_exact(host: bytes, status: int) -> None:
    app = application(FakeBackend(), allow_hosts=("Box.lan", "gate.lan:443"))
    assert visit(app, "GET", "/health", (b"host", host)).status == status


def test_on_port_80_the_port_may_be_left_out() -> None:
    assert visit(application(FakeBackend(), port=80), "GET", "/health", (b"host", b"localhost")).status == 200


def test_listening_everywhere_the_address_a_client_used_is_a_name() -> None:
    app = application(FakeBackend(), host="0.0.0.0", api_key=KEY)
    local = ("192.168.1.5", 8033)
    assert visit(app, "GET", "/health", (b"host", b"192.168.1.5:8033"), server=local).status == 200
    assert visit(app, "GET", "/health", (b"host", b"192.168.1.6:8033"), server=local).status == 403
    assert visit(app, "GET", "/health", (b"host", b"evil.com:8033"), server=local).status == 403
    mapped = ("::ffff:192.168.1.5", 8033)
    assert visit(app, "GET", "/health", (b"host", b"192.168.1.5:8033"), server=mapped).status == 200
    loopback_only = application(FakeBackend())
    assert visit(loopback_only, "GET", "/health", (b"host", b"192.168.1.5:8033"), server=local).status == 403


def test_control_a_prefix_match_would_let_strangers_in() -> None:
    """Planted fault: names are compared by how they begin."""
    exact = doors(OPTIONS)
    prefix = [host for host in FOREIGN_HOSTS if any(host.lower().startswith(name) for name in exact.hosts)]
    assert len(prefix) >= 3
    assert not any(exact.host_allowed(host, ("127.0.0.1", 8033)) for host in prefix)


def test_a_refused_host_is_shown_harmlessly() -> None:
    answer = visit(application(FakeBackend()), "GET", "/", (b"host", b"<b>\x00\xff" + b"x" * 500))
    assert "<b>?" in answer.json()["error"]["message"]
    assert len(answer.body) < 500


# Origins

ALLOWED_ORIGINS = [
    b"http://localhost:3000",
    b"http://127.0.0.1:8033",
    b"https://localhost",
    b"http://[::1]:5173",
    b"vscode-webview://1a2b3c",
    b"vscode-file://vscode-app",
    b"app://obsidian.md",
    b"tauri://localhost",
    b"https://chat.example",
]
FOREIGN_ORIGINS = [
    b"null",
    b"",
    b"https://evil.com",
    b"http://localhost.evil.com",
    b"http://localhost:3000.evil.com",
    b"http://localhost:3000@evil.com",
    b"http://127.0.0.1.evil.com",
    b"http://evil.com:8033",
    b"https://chat.example.evil.com",
    b"https://chat.example:444",
    b"http://chat.example",
    b"https://xchat.example",
    b"file://",
    b"chrome-extension://abcdef",
    b"vscode-webview://x/evil.com",
    b"app://x y",
    b"http://localhost:3000\n",
]


@pytest.mark.parametrize("origin", ALLOWED_ORIGINS)
def test_allowed_origins_may_read_the_answer(origin: bytes) -> None:
    app = application(FakeBackend(), allow_origins=("https://chat.example",))
    for path in (CHAT, "/nope"):
        answer = visit(app, "POST", path, HOST, JSON, (b"origin", origin))
        assert answer.status == (200 if path == CHAT else 404)
        assert answer.headers["access-control-allow-origin"] == origin.decode()
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_foreign_origins_are_refused_before_routing(origin: bytes) -> None:
    backend = FakeBackend()
    app = application(backend, allow_origins=("https://chat.example",))
    for method, path in PATHS:
        answer = visit(app, method, path, HOST, JSON, (b"origin", origin))
        assert answer.status == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert backend.requests == []


def test_two_origins_are_none() -> None:
    ours = (b"origin", b"http://localhost:3000")
    assert visit(application(FakeBackend()), "GET", "/", HOST, ours, ours).status == 403


def test_without_an_origin_nothing_is_said_about_origins() -> None:
    answer = visit(application(FakeBackend()), "GET", "/health", HOST)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", [CHAT, "/", "/nope", "/metrics"])
def test_preflights_need_no_key(path: str) -> None:
    asked = b"authorization, content-type, x-stainless-lang"
    headers = (
        HOST,
        (b"origin", b"http://localhost:3000"),
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", asked),
        (b"access-control-request-private-network", b"true"),
    )
    answer = visit(application(FakeBackend(), api_key=KEY), "OPTIONS", path, *headers)
    assert answer.status == 200
    assert answer.headers["access-control-allow-headers"] == asked.decode()
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert answer.headers["access-control-allow-credentials"] == "true"


def test_what_a_preflight_echoes_is_only_header_names() -> None:
    headers = (HOST, (b"origin", b"http://localhost"), (b"access-control-request-headers", b"x\r\nset-cookie: a=1"))
    answer = visit(application(FakeBackend()), "OPTIONS", CHAT, *headers)
    assert answer.headers["access-control-allow-headers"] == "*"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (b"application/json", 200),
        (b"Application/JSON; charset=utf-8", 200),
        (b"text/plain", 415),
        (b"application/x-www-form-urlencoded", 415),
        (b"multipart/form-data; boundary=x", 415),
        (b"application/jsonx", 415),
        (b"", 415),
        (None, 415),
    ],
)
def test_a_page_must_send_json(kind: bytes | None, status: int) -> None:
    headers = [HOST, (b"origin", b"http://localhost:3000")] + ([(b"content-type", kind)] if kind is not None else [])
    backend = FakeBackend()
    assert visit(application(backend), "POST", CHAT, *headers).status == status
    assert len(backend.requests) == (status == 200)


def test_a_program_may_name_its_body_as_it_likes() -> None:
    assert visit(application(FakeBackend()), "POST", CHAT, HOST, (b"content-type", b"text/plain")).status == 200


# Keys

RIGHT = [
    (b"authorization", b"Bearer " + KEY.encode()),
    (b"authorization", b"bearer  " + KEY.encode() + b" "),
    (b"x-api-key", KEY.encode()),
    (b"api-key", KEY.encode()),
]
WRONG: list[tuple[bytes, bytes] | None] = [
    None,
    (b"authorization", b""),
    (b"authorization", b"Bearer"),
    (b"authorization", b"Bearer "),
    (b"authorization", b"Bearer undefined"),
    (b"authorization", KEY.encode()),
    (b"authorization", b"Basic " + KEY.encode()),
    (b"authorization", b"Bearer " + KEY[:-1].encode()),
    (b"authorization", b"Bearer " + KEY.encode() + b"x"),
    (b"authorization", b"Bearer " + KEY.upper().encode()),
    (b"authorization", b"Bearer " + b"x" * 20_000),
    (b"authorization", "Bearer schlüssel".encode()),
    (b"authorization", b"Bearer \xff\xfe"),
    (b"x-api-key", b""),
    (b"cookie", b"key=" + KEY.encode()),
]


def _route_paths(app: Any) -> list[tuple[str, str]]:
    """Every method and path there is, and one that is not."""
    assert all(isinstance(route, APIRoute) for route in app.routes)
    pairs = [(m, r.path.replace("{name:path}", "x")) for r in app.routes for m in sorted(r.methods)]
    assert len(pairs) >= 24
    return [*pairs, ("GET", "/nope"), ("GET", "/docs"), ("PUT", "/")]


@pytest.mark.parametrize("offer", WRONG, ids=lambda offer: repr(offer)[:40])
def test_without_the_key_every_route_but_health_is_401(offer: tuple[bytes, bytes] | None) -> None:
    backend = FakeBackend()
    app = application(backend, api_key=KEY)
    n_open = 0
    for method, path in _route_paths(app):
        for form in (path, path.rstrip("/") + "/"):
            answer = visit(app, method, form, HOST, JSON, *([offer] if offer else []))
            if path in ("/health", "/v1/health"):
                n_open += answer.status == 200
            else:
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), (method, form)
                assert answer.json()["error"]["type"] == "authentication_error"
    assert n_open == 8
    assert backend.requests == []


@pytest.mark.parametrize("offer", RIGHT)
def test_with_the_key_every_route_answers(offer: tuple[bytes, bytes]) -> None:
    app = application(FakeBackend(), api_key=KEY)
    for method, path in _route_paths(app):
        assert visit(app, method, path, HOST, JSON, offer).status in (200, 404, 405)


@pytest.mark.parametrize("offer", WRONG, ids=lambda offer: repr(offer)[:40])
def test_without_a_key_any_offer_is_ignored(offer: tuple[bytes, bytes] | None) -> None:
    assert visit(application(FakeBackend()), "POST", CHAT, HOST, JSON, *([offer] if offer else [])).status == 200


def test_one_right_offer_among_wrong_ones_is_enough() -> None:
    offers = [(b"authorization", b"Bearer other"), (b"x-api-key", KEY.encode())]
    assert visit(application(FakeBackend(), api_key=KEY), "GET", "/v1/models", HOST, *offers).status == 200


def test_control_a_route_that_forgot_the_guard_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the guard counts one more path as open."""
    from runtime.service import guard

    monkeypatch.setattr(guard, "OPEN_PATHS", (*guard.OPEN_PATHS, "/metrics"))
    app = application(FakeBackend(), api_key=KEY)
    assert ("GET", "/metrics") in _route_paths(app)
    assert visit(app, "GET", "/metrics", HOST).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "box.lan", ""])
def test_other_computers_need_a_key(host: str) -> None:
    with pytest.raises(CannotServe, match="--api-key"):
        application(FakeBackend(), host=host)
    assert application(FakeBackend(), host=host, api_key=KEY)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.5"])
def test_this_computer_needs_none(host: str) -> None:
    assert application(FakeBackend(), host=host)


# Sizes


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"x", b"y")] * (limits.HEADER_COUNT - 1), 200),
        ([(b"x", b"y")] * limits.HEADER_COUNT, 431),
        ([(b"x", b"y" * (limits.HEADER_BYTES - 100))], 200),
        ([(b"x", b"y" * limits.HEADER_BYTES)], 431),
    ],
    ids=["count", "count + 1", "bytes", "bytes + 1"],
)
def test_headers_are_bounded(headers: list[tuple[bytes, bytes]], status: int) -> None:
    assert visit(application(FakeBackend()), "GET", "/health", HOST, *headers).status == status


def test_only_paths_are_targets() -> None:
    assert visit(application(FakeBackend()), "GET", "http://evil.com/health", HOST).status == 400


# On a real server


@pytest.mark.parametrize(
    ("request_line", "host", "status"),
    [
        ("GET /health", "localhost", 200),
        ("GET /health", "evil.com", 403),
        ("GET http://evil.com/health", "localhost", 400),
        ("GET http://localhost/health", "localhost", 400),
        ("GET @evil.com", "localhost", 400),
        ("GET health", "localhost", 400),
        ("GET *", "localhost", 400),
        ("CONNECT evil.com:443", "localhost", 400),
        ("GET //evil.com/health", "localhost", 404),
    ],
)
def test_targets_and_hosts_of_raw_requests(request_line: str, host: str, status: int) -> None:
    with LiveServer() as server:
        raw = f"{request_line} HTTP/1.1\r\nHost: {host}:{server.port}\r\n\r\n"
        assert status_of(server.exchange(raw.encode())) == status


def test_two_hosts_on_a_real_server() -> None:
    with LiveServer() as server:
        ours = f"Host: localhost:{server.port}\r\n"
        raw = f"GET /health HTTP/1.1\r\n{ours}Host: evil.com\r\n\r\n"
        assert status_of(server.exchange(raw.encode())) in (400, 403)
        assert status_of(server.exchange(b"GET /health HTTP/1.1\r\n\r\n")) in (400, 403)
        assert status_of(server.exchange(b"GET /health HTTP/1.0\r\n\r\n")) in (400, 403)


def test_paths_of_the_table_are_the_ones_documented() -> None:
    paths = {route.path for route in application(FakeBackend()).routes}
    bare = {"/", "/health", "/metrics", "/models", "/models/{name:path}", "/chat/completions", "/completions"}
    assert paths == bare | {("/v1" + path).rstrip("/") for path in bare}
    assert app_module.PREFIXES == ("", "/v1")
    assert TEXT in paths
