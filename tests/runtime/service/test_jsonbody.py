"""Bodies: how much is read, and what counts as JSON."""

from __future__ import annotations

from typing import Any

import pytest
from asgi_call import HOST, JSON, call
from fakes import FakeBackend
from service_bench import CHAT, application, run

from models import limits
from runtime.errors import InvalidRequest
from runtime.service import jsonbody


def nested(depth: int) -> bytes:
    return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)


def test_depth_is_bounded() -> None:
    assert jsonbody.parse(nested(limits.JSON_DEPTH))
    for raw in (nested(limits.JSON_DEPTH + 1), b'{"a":' + b"[" * limits.JSON_DEPTH + b"]" * limits.JSON_DEPTH + b"}"):
        with pytest.raises(InvalidRequest, match=f"nests more than {limits.JSON_DEPTH}"):
            jsonbody.parse(raw)


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
def test_depth_that_no_stack_holds(depth: int) -> None:
    with pytest.raises(InvalidRequest):
        jsonbody.parse(b'{"a":' * depth)


def test_many_containers_side_by_side_are_not_deep() -> None:
    raw = b'{"a":[' + b",".join([b'[{"b":[1]}]'] * 1000) + b"]}"
    assert len(jsonbody.parse(raw)["a"]) == 1000


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"nul",
        b"{",
        b'{"a":}',
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"\xff"}',
        b'{"a":1}{"b":2}',
        b"a=1&b=2",
        b"\x00",
        b"[]",
        b'"x"',
        b"5",
        b"true",
        b"null",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_what_is_not_one_object(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        jsonbody.parse(raw)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb'"\ud83d"', "\ufffd"),
        (rb'"a\ude00b"', "a\ufffdb"),
        (rb'"\ud83d\ude00\ud83d"', "😀\ufffd"),
        (rb'"\ud83d\n\\ud83d"', "\ufffd\n\\ud83d"),
        (rb'"\\\ud83d"', "\\\ufffd"),
        (rb'"\uD83Dx\uDE00"', "\ufffdx\ufffd"),
        (rb'"\\ud83d"', "\\ud83d"),
    ],
)
def test_half_an_emoji_becomes_a_replacement_character(raw: bytes, text: str) -> None:
    assert jsonbody.parse(b'{"a":' + raw + b"}") == {"a": text}


def test_a_byte_order_mark_is_no_obstacle() -> None:
    assert jsonbody.parse(b'\xef\xbb\xbf{"a":1}') == {"a": 1}


def test_numbers_keep_their_size() -> None:
    assert jsonbody.parse(b'{"a":18446744073709551616}') == {"a": 2**64}


async def _read(pieces: list[bytes], declared: bytes | None, max_bytes: int) -> tuple[bytes, int]:
    """What was read, and how many pieces were asked for."""
    asked = 0

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": pieces[asked - 1], "more_body": asked < len(pieces)}

    try:
        return await jsonbody.read(receive, declared, max_bytes), asked
    except jsonbody.BodyTooLarge:
        return b"too large", asked


def test_a_body_is_refused_before_it_is_in_memory() -> None:
    async def body() -> None:
        assert await _read([b"x" * 5] * 2, b"10", 10) == (b"x" * 10, 2)
        assert await _read([b"x" * 5] * 100, None, 10) == (b"too large", 3)
        assert await _read([b"x"], b"11", 10) == (b"too large", 0)

    run(body)


def test_a_body_over_the_limit_is_413() -> None:
    async def body() -> None:
        app = application(FakeBackend(), body_bytes=100)
        refused = await call(app, "POST", CHAT, b"x" * 101, headers=(HOST, JSON))
        assert refused.status == 413
        assert refused.json()["error"]["max_bytes"] == 100
        declared = await call(app, "POST", CHAT, b"x", headers=(HOST, JSON, (b"content-length", b"101")))
        assert declared.status == 413

    run(body)


def test_a_client_that_leaves_while_sending_is_not_an_error_of_ours() -> None:
    async def body() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        with pytest.raises(jsonbody.ClientGone):
            await jsonbody.read(receive, None, 10)

    run(body)


def test_control_without_the_depth_check_deep_bodies_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: the check is gone."""
    monkeypatch.setattr(jsonbody, "_check_depth", lambda raw, body: None)
    assert jsonbody.parse(nested(limits.JSON_DEPTH + 1))
