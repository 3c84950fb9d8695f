"""The judge of the soak finds what it must: lost, doubled and false entries, memory, long turns."""

from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from bench.soak.appends import Producer, body_of, named
from bench.soak.judge import Verdict, judge_lives, judge_log, judge_strangers
from bench.soak.readers import Seen
from bench.soak.strikes import entries_end
from bench.soak.watch import Life
from dledger_formats.log import disk

COUNT = 10


class Log:
    """A client of a log that holds these bodies."""

    def __init__(self, bodies: list[bytes]) -> None:
        self._bodies = bodies

    async def get_range(self, _: int) -> AsyncIterator[object]:
        for index, body in enumerate(self._bodies):
            yield SimpleNamespace(index=index, body=body, magic=disk.NORMAL)


def producer() -> Producer:
    """Return a producer whose appends 0 to 8 were acknowledged; it does not know of number 9."""
    one = Producer("plain", None, 1)  # type: ignore[arg-type]
    one.acknowledged = {number: number for number in range(COUNT - 1)}
    one.unknown = {COUNT - 1}
    return one


BODIES = [body_of("plain", number) for number in range(COUNT)]


async def violations(bodies: list[bytes], one: Producer | None = None) -> list[str]:
    verdict = Verdict()
    await judge_log(Log(bodies), [one or producer()], Seen(verdict.blame), verdict)  # type: ignore[arg-type]
    return verdict.violations


def test_a_body_names_its_producer_and_number() -> None:
    assert [named(body) for body in BODIES] == [("plain", number) for number in range(COUNT)]


async def test_a_log_with_all_that_was_acknowledged_is_right() -> None:
    assert await violations(BODIES) == []
    assert await violations(BODIES[:-1]) == []  # the outcome of the last one is unknown


async def test_a_lost_append_is_found() -> None:
    [lost] = await violations(BODIES[:4])

    assert lost.startswith("5 acknowledged appends are lost")


async def test_an_append_that_has_moved_is_found() -> None:
    moved = [BODIES[1], BODIES[0], *BODIES[2:]]

    assert "2 acknowledged appends are lost" in (await violations(moved))[0]


async def test_an_append_that_is_in_the_log_twice_is_found() -> None:
    [doubled] = await violations([*BODIES, BODIES[3]])

    assert doubled.startswith("1 appends are in the log more than once")


async def test_a_refused_append_in_the_log_is_found() -> None:
    one = producer()
    one.refused = {COUNT - 1}

    assert "refused" in (await violations(BODIES, one))[0]


async def test_a_false_byte_is_found() -> None:
    false = BODIES[2][:-1] + b"x"

    assert "is not what was appended" in (await violations([*BODIES[:2], false, *BODIES[3:]]))[0]


def test_two_answers_for_one_index_are_found() -> None:
    verdict = Verdict()
    seen = Seen(verdict.blame)
    seen.serves("one", 3, b"a")
    seen.serves("other", 3, b"b")

    assert verdict.violations == ["other was served two different bodies at index 3"]


def life(**values: object) -> Life:
    one = Life("n1", 0.0, memory=[(second, 50 << 20) for second in range(600)])
    one.turns, one.timers = 1_000_000, 100_000
    for name, value in values.items():
        setattr(one, name, value)
    return one


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"memory": [(s, (50 << 20) + 40_000 * s) for s in range(600)]}, "the memory of n1 grew"),
        ({"memory": [(0, 300 << 20)]}, "took 300 MiB"),
        ({"longest_turn_s": 0.3}, "a turn of 0.300 s"),
        ({"long_turns": 200}, "200 of 1000000 turns"),
        ({"late_timers": 3000}, "3000 of 100000 timers"),
    ],
)
def test_a_process_that_exceeds_a_bound_is_found(values: dict[str, object], found: str) -> None:
    sound, exceeding = Verdict(), Verdict()
    judge_lives([life()], "n1", sound)
    judge_lives([life(**values)], "n1", exceeding)

    assert sound.violations == []
    assert [found in violation for violation in exceeding.violations] == [True]


@pytest.mark.parametrize("behind", [b"", disk.BLANK_HEADER.pack(disk.BLANK, 300) + bytes(292)])
def test_rot_strikes_entries_only(behind: bytes) -> None:
    entries = disk.pack_entries(
        [b"a", b"b" * 300], magic=disk.NORMAL, first_index=7, term=1, pos=0, previous_chain_crc=0
    ).data

    assert entries_end(bytes(entries) + behind) == len(entries)


@pytest.mark.parametrize(
    ("opened", "kept", "is_right"), [(100, 60, True), (100, 40, False), (0, 0, False)]
)
def test_strangers_whose_connections_do_not_stay_open_prove_nothing(
    opened: int, kept: int, is_right: bool
) -> None:
    verdict = Verdict()

    judge_strangers(opened, kept, verdict)

    assert (verdict.violations == []) is is_right
