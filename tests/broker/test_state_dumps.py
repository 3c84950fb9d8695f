"""The state of a broker as the bytes of a snapshot: its format, and bytes that are none."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.state.broker_state import BrokerState
from dledger_broker_log.logs import STORED_AT_MS, Send
from dledger_broker_log.states import applied, dumped, group_set, joined, offsets, topic_set
from dledger_formats.rocketmq.state_records import QueuesLocked

PAGE = Path(__file__).parents[2] / "docs" / "disk-format.md"


def test_the_dump_format_does_not_change() -> None:
    state = applied(
        group_set("g"), topic_set("T", 2), Send("T", 1), offsets("g", "T", (1, 4)),
        joined("a", "g"), QueuesLocked(client_id="a", group="g", queues=[("T", 1)]),
    )  # fmt: skip
    lines = [json.loads(line) for line in dumped(state).splitlines()]

    assert lines[0][:2] == ["DLBROKER", 1]
    assert lines[0][2] == {
        "topics": [1, STORED_AT_MS + 1],
        "groups": [1, STORED_AT_MS],
        "delays": [0] * 18,
        "lastPhysicalOffset": state.tables.last_physical_offset,
    }
    assert [line[0] for line in lines[1:]] == [
        "topic", "topic", "group", "offsets", "client", "lock", "end",
    ]  # fmt: skip
    assert lines[2][1] == "T"
    assert lines[2][3:] == [1, [0, 1]]
    assert lines[4] == ["offsets", "g", "T", [-1, 4]]
    assert lines[6:] == [["lock", "g", "T", 1, "a"], ["end", 7]]


def test_the_page_of_formats_shows_a_dump() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith('["')]
    shown = "".join(f"{line}\n" for line in lines).encode()
    state = BrokerState()

    state.load(io.BytesIO(shown))

    assert dumped(state) == shown
    assert {json.loads(line)[0] for line in lines} == {
        "DLBROKER", "topic", "group", "offsets", "client", "lock", "end",
    }  # fmt: skip


FULL = dumped(
    applied(
        group_set("g"), topic_set("T", 2), offsets("g", "T", (1, 4)), joined("a", "g"),
        QueuesLocked(client_id="a", group="g", queues=[("T", 1)]),
    )
).splitlines(keepends=True)  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [
        [],
        FULL[1:],
        FULL[:-1],
        [*FULL, FULL[1]],
        [FULL[0], *FULL],
        *([*FULL[:at], FULL[at], *FULL[at:]] for at in range(1, len(FULL))),
        [FULL[0].replace(b",1,", b",2,", 1), *FULL[1:]],
        [*FULL[:-1], FULL[-1].replace(b"7", b"8")],
        [*FULL[:-1], FULL[-1].rstrip()],
        [FULL[0], b'["later",1]\n', b'["end",2]\n'],
        [FULL[0], b'["offsets","g","T",[1,-1]]\n', b'["end",2]\n'],
        [FULL[0], b'["topic","T",null,0,[-1]]\n', b'["end",2]\n'],
        [FULL[0], b'["topic","../T",null,0,[]]\n', b'["end",2]\n'],
        [b"{}\n"],
        [b"[]\n"],
        [b"\xff\n"],
    ],
    ids=lambda lines: b"".join(lines)[-40:].hex(),
)
def test_bytes_that_are_not_a_dump_are_rejected(lines: list[bytes]) -> None:
    state = applied(topic_set("T"))
    before = dumped(state)

    with pytest.raises(ValueError, match="dump of a broker"):
        state.load(io.BytesIO(b"".join(lines)))
    assert dumped(state) == before


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 20))
def test_a_damaged_dump_is_loaded_or_rejected(noise: bytes, at: int, removed: int) -> None:
    raw = b"".join(FULL)
    damaged = raw[:at] + noise + raw[at + removed :]
    state = BrokerState()

    try:
        state.load(io.BytesIO(damaged))
    except ValueError:
        return
    again = BrokerState()
    again.load(io.BytesIO(dumped(state)))
    assert dumped(again) == dumped(state)
