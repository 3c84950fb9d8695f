"""Work on many things goes on in the next turns of the loop, whatever one of them does."""

import asyncio

import pytest

from dledger_node.slices import PER_TURN, Slices, in_slices


async def turns_of(work: Slices, left: list[int]) -> list[int]:
    """Begin, and return how many things were left after each turn, until none are."""
    counts = []
    work.begin()
    while left:
        counts.append(len(left))
        await asyncio.sleep(0)
    return counts


async def test_each_turn_handles_so_many() -> None:
    left = list(range(3 * PER_TURN + 1))

    def take(count: int) -> bool:
        del left[:count]
        return bool(left)

    assert await turns_of(Slices(take), left) == [2 * PER_TURN + 1, PER_TURN + 1, 1]


async def test_an_error_of_one_thing_costs_no_other() -> None:
    errors: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))
    left, handled = list(range(4 * PER_TURN)), []

    def take(count: int) -> bool:
        for _ in range(min(count, len(left))):
            thing = left.pop(0)
            if thing == PER_TURN + 7:
                raise ValueError(f"{thing} fails")
            handled.append(thing)
        return bool(left)

    await turns_of(Slices(take), left)

    assert errors == [f"{PER_TURN + 7} fails"]
    assert handled == [each for each in range(4 * PER_TURN) if each != PER_TURN + 7]


async def test_the_first_slice_reports_its_error_and_the_others_follow() -> None:
    left = [1, 2]

    def take(_: int) -> bool:
        if left.pop() == 2:
            raise ValueError("2 fails")
        return bool(left)

    with pytest.raises(ValueError, match="2 fails"):
        Slices(take).begin()
    await asyncio.sleep(0)

    assert not left


async def test_what_is_iterated_in_slices_leaves_turns_to_others() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    seen = [each async for each in in_slices(range(5 * PER_TURN))]
    task.cancel()

    assert seen == list(range(5 * PER_TURN))
    assert turns >= 4
