"""The channel: whole frames whatever the cuts, a typed end for anything else, and a sender that never waits."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.frames import HEADER, Cancel, Delta, Frame, Loading, Ping, Stop, ToService, ToWorker, encode
from runtime.service.channel import UNREAD_BYTES, Channel
from runtime.transport import BadFrame, Splitter, Transport

FRAMES: list[Frame] = [Ping(1), Cancel("a" * 300), Ping(2), Stop(), Cancel("ü")]
STREAM = b"".join(map(encode, FRAMES))
PATIENCE_S = 20.0


@contextmanager
def channel(**options: Any) -> Iterator[tuple[Transport, socket.socket]]:
    """A worker's end, and the bare socket at the other."""
    ours, theirs = socket.socketpair()
    transport = Transport(ours, ToWorker, **options)
    with theirs:
        yield transport, theirs
        transport.close()


# the splitter


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_frames_arrive_whole_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    got: list[Frame] = []
    splitter = Splitter(ToWorker, got.append)
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, stop in itertools.pairwise(edges):
        splitter.feed(STREAM[start:stop])
    splitter.end()
    assert got == FRAMES


BROKEN = {
    "too long": HEADER.pack(2**32 - 1),
    "not msgpack": HEADER.pack(3) + b"\xc1\xc1\xc1",
    "two values": HEADER.pack(len(encode(Ping(1))) - 4 + 1) + encode(Ping(1))[4:] + b"\xc0",
    "the other direction": encode(Loading(0.5)),
    "a wrong type": encode(Ping("one")),  # type: ignore[arg-type]
    "text that is not UTF-8": encode(Cancel("abcd")).replace(b"abcd", b"\xff\xfe\xfd\xfc"),
}


@pytest.mark.parametrize("bad", BROKEN.values(), ids=BROKEN)
def test_a_broken_frame_ends_the_channel_after_the_good_ones_before_it(bad: bytes) -> None:
    got: list[Frame] = []
    splitter = Splitter(ToWorker, got.append)
    with pytest.raises(BadFrame, match="bytes"):
        splitter.feed(STREAM + bad + encode(Ping(9)))
    assert got == FRAMES


def test_an_end_inside_a_frame_is_an_error() -> None:
    splitter = Splitter(ToWorker, lambda frame: None)
    splitter.feed(STREAM[:-1])
    with pytest.raises(BadFrame, match="inside a frame"):
        splitter.end()


# the worker's end


def test_the_worker_reads_until_its_peer_closes() -> None:
    with channel() as (transport, peer):
        peer.sendall(STREAM)
        peer.shutdown(socket.SHUT_WR)
        assert list(transport) == FRAMES


def test_the_worker_reads_the_good_frames_before_a_broken_one() -> None:
    with channel() as (transport, peer):
        peer.sendall(STREAM + BROKEN["too long"])
        got = []
        with pytest.raises(BadFrame, match="allowed"):
            got.extend(transport)  # extend keeps what came before the error
        assert got == FRAMES


def _returns(send: Callable[[], None], within_s: float) -> bool:
    def attempt() -> None:
        with suppress(OSError):  # the socket is closed under a send that waits
            send()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(within_s)
    return not thread.is_alive()


def test_send_never_waits_for_a_peer_that_does_not_read() -> None:
    big = Delta("r", 0, "x" * 100_000, 1)
    with channel(outgoing_bytes=4_000_000) as (transport, _peer):
        assert _returns(lambda: [transport.send(big) for _ in range(30)] and None, PATIENCE_S)
        assert not transport.flush(0.0), "nothing was queued: the peer's buffer swallowed it all"
        # control: the planted fault is a send that writes to the socket itself
        assert not _returns(lambda: transport._socket.sendall(encode(big) * 30), 0.3)


def test_a_peer_that_never_reads_loses_the_channel() -> None:
    big = Delta("r", 0, "x" * 100_000, 1)
    with channel(outgoing_bytes=1_000_000) as (transport, _peer):
        for _ in range(40):
            transport.send(big)
        assert list(transport) == []  # the reader sees the end, so the worker ends
        assert transport._n_outgoing <= 1_200_000, "the queue has no bound"


def test_what_many_threads_send_arrives_whole_and_in_each_threads_order() -> None:
    n_threads, n_frames = 4, 400
    got: list[Any] = []
    with channel() as (transport, peer):

        def send(index: int) -> None:
            for number in range(n_frames):
                transport.send(Delta(f"r{index}", number, "x" * 500, 1))

        threads = [threading.Thread(target=send, args=(index,)) for index in range(n_threads)]
        for thread in threads:
            thread.start()
        splitter = Splitter(ToService, got.append)
        while len(got) < n_threads * n_frames:
            splitter.feed(peer.recv(3000))
        for thread in threads:
            thread.join()
        assert transport.flush(PATIENCE_S)
    for index in range(n_threads):
        assert [frame.index for frame in got if frame.id == f"r{index}"] == list(range(n_frames))


def test_send_after_the_end_is_dropped_and_close_may_be_repeated() -> None:
    with channel() as (transport, peer):
        peer.close()
        for number in range(100):
            transport.send(Loading(number / 100))
        assert list(transport) == []
        transport.close()
        transport.close()
        transport.send(Loading(1.0))


# the service's end


def _runners() -> dict[str, Callable[[Any], Any]]:
    runners: dict[str, Callable[[Any], Any]] = {"asyncio": asyncio.run}
    try:
        import uvloop
    except ImportError:
        return runners
    return runners | {"uvloop": uvloop.run}


both_loops = pytest.mark.parametrize("run", _runners().values(), ids=_runners())


@both_loops
def test_both_ends_understand_each_other(run: Callable[[Any], Any]) -> None:
    async def talk() -> tuple[list[Any], list[Any], list[Any]]:
        ours, theirs = socket.socketpair()
        worker = Transport(theirs, ToWorker)
        heard_by_worker: list[Any] = []
        thread = threading.Thread(target=lambda: heard_by_worker.extend(worker))
        thread.start()
        heard: list[Any] = []
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        channel = await Channel.open(ours, heard.append, ended.set_result, lambda: None)
        for frame in FRAMES:
            channel.send(frame)
        channel.send(encode(Ping(77)))
        for number in range(500):
            worker.send(Delta("r", number, "text", 1))
        assert await asyncio.to_thread(worker.flush, PATIENCE_S)
        worker._socket.shutdown(socket.SHUT_WR)
        assert await asyncio.wait_for(ended, PATIENCE_S) is None
        channel.close()
        await asyncio.to_thread(thread.join)
        worker.close()
        return heard, heard_by_worker, [channel.is_open]

    heard, heard_by_worker, is_open = run(talk())
    assert [frame.index for frame in heard] == list(range(500))
    assert heard_by_worker == [*FRAMES, Ping(77)]
    assert is_open == [False]


@both_loops
def test_the_service_hears_of_a_broken_frame_once(run: Callable[[Any], Any]) -> None:
    async def talk() -> tuple[list[Any], list[Any]]:
        ours, theirs = socket.socketpair()
        heard: list[Any] = []
        ends: list[Any] = []
        ended = asyncio.Event()

        def on_end(error: BadFrame | None) -> None:
            ends.append(error)
            ended.set()

        with theirs:
            channel = await Channel.open(ours, heard.append, on_end, lambda: None)
            theirs.sendall(encode(Loading(0.5)) + HEADER.pack(2**31) + encode(Loading(0.6)))
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
            channel.send(Stop())
            channel.close()
            await asyncio.sleep(0)
        return heard, ends

    heard, ends = run(talk())
    assert heard == [Loading(0.5)]
    assert len(ends) == 1
    assert isinstance(ends[0], BadFrame)


@both_loops
def test_a_worker_that_does_not_read_congests_the_channel_until_it_does(run: Callable[[Any], Any]) -> None:
    async def talk() -> None:
        ours, theirs = socket.socketpair()
        drained = asyncio.Event()
        channel = await Channel.open(ours, lambda frame: None, lambda error: None, drained.set)
        channel.send(b"x" * (3 * UNREAD_BYTES))
        assert channel.is_congested
        reader = threading.Thread(target=lambda: [theirs.recv(2**20) for _ in range(3000) if not drained.is_set()])
        reader.start()
        await asyncio.wait_for(drained.wait(), PATIENCE_S)
        assert not channel.is_congested
        channel.close()
        await asyncio.to_thread(reader.join)
        theirs.close()

    run(talk())
