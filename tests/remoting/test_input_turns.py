"""The time of the event loop that the input of clients may take."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.protocol import frames, requests
from dledger_formats.protocol.append_batch import APPEND_BATCH, AppendBatchRequest
from dledger_formats.protocol.codes import RequestCode
from dledger_node.raft.messages import HeartBeatRequest, Message
from dledger_node.remoting import native
from dledger_node.remoting.input_turns import PEERS_SLICE_S, SLICE_S, InputTurns
from dledger_wire.listener import (
    Listener,
    append_request,
    hello,
    listening,
    metadata_request,
    until,
)
from dledger_wire.turning_loop import TurningLoop


class Sender:
    """A connection with input of this many parts."""

    def __init__(self, loop: TurningLoop, parts: int, cost_s: float = SLICE_S / 2) -> None:
        self.loop, self.parts, self.cost_s = loop, parts, cost_s
        self.on_part: Callable[[], None] = lambda: None

    def take_input(self, until_s: float) -> bool:
        self.parts -= 1
        self.loop.now_s += self.cost_s
        self.on_part()
        return self.parts > 0


@pytest.fixture
def loop() -> TurningLoop:
    return TurningLoop()


@pytest.fixture
def turns(loop: TurningLoop) -> InputTurns:
    return turns_of(loop)


def turns_of(loop: TurningLoop) -> InputTurns:
    return InputTurns(lambda run: loop.due.append(run), lambda: loop.now_s)


def test_input_is_handled_at_once_while_the_turn_has_time(
    loop: TurningLoop, turns: InputTurns
) -> None:
    sender = Sender(loop, 2)

    turns.ready(sender)

    assert sender.parts == 0


def test_no_turn_begins_with_more_input_than_its_slice(
    loop: TurningLoop, turns: InputTurns
) -> None:
    senders = [Sender(loop, 5) for _ in range(20)]
    for sender in senders:
        turns.ready(sender)
    assert loop.now_s <= 1.5 * SLICE_S

    while loop.due:
        assert loop.turn() <= 1.5 * SLICE_S

    assert not any(sender.parts for sender in senders)


@given(
    st.lists(st.tuples(st.sampled_from(["before", "behind"]), st.integers(1, 9)), max_size=40),
)
def test_input_before_and_behind_the_slice_of_a_turn_counts_with_it(
    entries: list[tuple[str, int]],
) -> None:
    """Reads let connections go on anywhere in a turn, so input took two slices of it."""
    loop = TurningLoop()
    turns = turns_of(loop)
    for place, parts in entries:
        began_s = loop.now_s
        if place == "before":
            turns.ready(Sender(loop, parts))
        loop.turn()
        if place == "behind":
            turns.ready(Sender(loop, parts))
        assert loop.now_s - began_s <= 1.5 * SLICE_S


def test_clients_take_turns(loop: TurningLoop, turns: InputTurns) -> None:
    greedy, modest = Sender(loop, 1000), Sender(loop, 1)
    turns.ready(greedy)
    turns.ready(modest)

    loop.turn()  # the first input was handled in this turn
    loop.turn()

    assert (modest.parts, greedy.parts > 900) == (0, True)


def test_a_closed_connection_is_not_served(loop: TurningLoop, turns: InputTurns) -> None:
    sender = Sender(loop, 100)
    sender.on_part = lambda: turns.forget(sender)

    turns.ready(sender)
    loop.turn()

    assert sender.parts == 99


def test_what_becomes_ready_while_it_is_served_is_not_entered_twice(
    loop: TurningLoop, turns: InputTurns
) -> None:
    sender, depths = Sender(loop, 3, cost_s=0.0), [0]

    def once_more() -> None:
        depths.append(depths[-1] + 1)
        turns.ready(sender)
        depths.append(depths[-1] - 1)

    sender.on_part = once_more
    turns.ready(sender)

    assert (sender.parts, max(depths)) == (0, 1)


def test_a_loop_without_input_is_not_kept_awake(loop: TurningLoop, turns: InputTurns) -> None:
    turns.ready(Sender(loop, 1, cost_s=0.0))
    loop.turn()

    assert not loop.due


# Real connections.


async def test_requests_of_many_turns_are_answered_in_order() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        await caller.say(b"".join(metadata_request(opaque) for opaque in range(20_000)))

        assert [(await caller.answer()).opaque for _ in range(20_000)] == list(range(20_000))


async def test_appends_of_one_connection_keep_their_order_over_turns() -> None:
    async with listening() as listener:
        caller = await listener.connect()
        bodies = [b"%d" % number for number in range(20_000)]
        frames_of_all = [append_request(number, body) for number, body in enumerate(bodies)]
        await caller.say(b"".join(frames_of_all))
        await until(lambda: len(listener.appended) == len(bodies))

        assert [call.body for call in listener.appended] == bodies


async def test_a_long_body_of_numbers_comes_between_its_neighbours() -> None:
    long = bytes(range(256)) * 2000
    raw = requests.AppendEntryRequest(group="g", remote_id="n0", body=long)
    numbers = frames.encode_requests(RequestCode.APPEND, [(1, raw.to_json(bytes_as_numbers=True))])
    async with listening() as listener:
        caller = await listener.connect()
        await caller.say(append_request(0, b"before") + numbers + append_request(2, b"after"))
        await until(lambda: len(listener.appended) == 3)

        assert [call.body for call in listener.appended] == [b"before", long, b"after"]


class TurnCounter:
    """Counts the requests of each turn of the loop, and takes a while for each."""

    def __init__(self, cost_s: float, count: int) -> None:
        """Follow the loop until it has handled this many requests."""
        self.of_turn: Counter[int] = Counter()
        self._cost_s, self._count = cost_s, count
        self._turn = 0
        self._loop = asyncio.get_running_loop()
        self._count_turns()

    def handle(self, *_: object) -> None:
        self.of_turn[self._turn] += 1
        end_s = time.perf_counter() + self._cost_s
        while time.perf_counter() < end_s:
            pass

    def _count_turns(self) -> None:
        self._turn += 1
        if self.of_turn.total() < self._count:
            self._loop.call_soon(self._count_turns)


async def test_batches_are_appended_in_the_slice_and_not_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten batches of 1024 empty bodies were read in 2 ms, and appended in 20 to 30 ms after it."""
    batch = AppendBatchRequest(group="g", remote_id="n0", bodies=[b""]).to_bytes()
    async with listening() as listener:
        counter = TurnCounter(SLICE_S / 2, 100)
        monkeypatch.setattr(listener, "append_batch", counter.handle, raising=False)
        unled = SimpleNamespace(leader_id=None)
        monkeypatch.setattr(listener, "passed_on", unled, raising=False)
        caller = await listener.connect()
        await caller.say(frames.encode_requests(APPEND_BATCH, [(n, batch) for n in range(100)]))
        await until(lambda: counter.of_turn.total() == 100)

        assert max(counter.of_turn.values()) <= 3


def heartbeats(count: int) -> list[HeartBeatRequest]:
    return [
        HeartBeatRequest(sender="n1", receiver="n0", term=1, committed_index=0, round=round_)
        for round_ in range(count)
    ]


class SlowMember(TurnCounter):
    """Keeps the messages, and takes a while for each."""

    def __init__(self, listener: Listener, cost_s: float) -> None:
        super().__init__(cost_s, 300)
        self._messages = listener.messages

    def receive(self, message: Message) -> None:
        self._messages.append(message)
        self.handle()


async def test_a_member_that_has_fallen_behind_reads_its_links_over_many_turns_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvloop reads a socket up to 32 times in one turn, so a turn took 20 ms and more."""
    messages = heartbeats(300)
    async with listening() as listener:
        link = await listener.connect()
        await link.say(hello())
        await link.answer()
        member = SlowMember(listener, PEERS_SLICE_S / 2)
        monkeypatch.setattr(listener, "receive", member.receive)
        await link.say(b"".join(b"".join(native.encode(each)) for each in messages))
        await until(lambda: len(listener.messages) == len(messages))

        assert listener.messages == messages
        assert max(member.of_turn.values()) <= 2


async def test_a_link_that_is_closed_with_messages_left_delivers_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The core relies on it: what a peer sent before its restart never comes after (recalling)."""
    async with listening() as listener:
        link = await listener.connect()
        await link.say(hello())
        await link.answer()
        member = SlowMember(listener, PEERS_SLICE_S)
        monkeypatch.setattr(listener, "receive", member.receive)
        await link.say(b"".join(b"".join(native.encode(each)) for each in heartbeats(200)))
        await until(lambda: bool(listener.messages))
        again = await listener.connect()
        await again.say(hello(incarnation=2))
        await again.answer()
        seen = len(listener.messages)
        await again.say(metadata_request(7))

        assert (await again.answer()).opaque == 7
        assert len(listener.messages) == seen < 200
