"""A benchmark fails if a turn of a member's event loop took too long."""

import pytest

from bench.turns import LARGE_BODY_BYTES, LongTurns, turn_s_max
from dledger_formats.log import disk
from tools.groups.turns import LARGEST_ENTRY_TURN_S_MAX, TURN_S_MAX, Turns

SHORT = Turns("n0", 0.0021, 0.007, None)
LONG = Turns("n1", 0.0312, 0.052, "4 turns of n1 took more than 5 ms of the processor")


def test_short_turns_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    long_turns = LongTurns()
    long_turns.report([SHORT])
    long_turns.judge()

    assert "n0 2.1 (timers up to 7 late)" in capsys.readouterr().out


def test_a_long_turn_of_any_load_fails_the_benchmark_at_its_end() -> None:
    long_turns = LongTurns()
    long_turns.report([SHORT, LONG])
    long_turns.report([SHORT])

    with pytest.raises(SystemExit, match="4 turns of n1") as ended:
        long_turns.judge()
    assert ended.value.code != 0


@pytest.mark.parametrize(
    ("body_bytes", "bound_s"),
    [
        (100, TURN_S_MAX),
        (LARGE_BODY_BYTES - 1, TURN_S_MAX),
        (disk.BODY_SIZE_MAX, LARGEST_ENTRY_TURN_S_MAX),
    ],
)
def test_the_bound_of_a_turn_depends_on_the_size_of_the_bodies(
    body_bytes: int, bound_s: float
) -> None:
    assert turn_s_max(body_bytes) == bound_s
