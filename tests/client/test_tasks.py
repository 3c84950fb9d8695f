"""Task scopes: background tasks that end with the block that owns them."""

import asyncio

import pytest

from dledger_client.tasks import TaskScope, uninterrupted


async def fail() -> None:
    raise LookupError("a defect")


async def test_running_tasks_are_cancelled_when_the_scope_exits() -> None:
    async with TaskScope() as tasks:
        task = tasks.spawn(asyncio.Event().wait())

    assert task.cancelled()


async def test_an_error_of_the_block_propagates_unchanged() -> None:
    async def own() -> None:
        async with TaskScope() as tasks:
            tasks.spawn(asyncio.Event().wait())
            raise KeyError

    with pytest.raises(KeyError):
        await own()


async def test_a_failing_task_ends_the_block_with_its_error() -> None:
    async def own() -> None:
        async with TaskScope() as tasks:
            tasks.spawn(fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await own()

    assert [str(error) for error in caught.value.exceptions] == ["a defect"]


async def test_a_cancelled_block_is_cancelled() -> None:
    entered = asyncio.Event()

    async def own() -> None:
        async with TaskScope() as tasks:
            tasks.spawn(asyncio.Event().wait())
            entered.set()
            await asyncio.Event().wait()

    owner = asyncio.create_task(own())
    await entered.wait()
    owner.cancel()

    with pytest.raises(asyncio.CancelledError):
        await owner


async def test_what_is_not_interrupted_ends_although_its_caller_is_cancelled_twice() -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def clean_up() -> None:
        begun.set()
        await may_end.wait()
        ended.set()

    caller = asyncio.create_task(uninterrupted(clean_up()))
    await begun.wait()
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0)
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()


async def test_a_task_of_a_scope_that_has_ended_does_not_begin() -> None:
    async with TaskScope() as tasks:
        pass
    late = tasks.spawn(fail())

    await asyncio.wait([late])
    assert late.cancelled()
