"""Values that are no index are refused at once, by the library and the command line."""

from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.read.indexes import INDEX_MAX

WRONG = [(-1, ValueError), (INDEX_MAX + 1, ValueError), ("7", TypeError), (True, TypeError)]


@pytest.mark.parametrize(("value", "error"), WRONG)
async def test_a_value_that_is_no_index_is_refused_before_anything_is_sent(
    value: Any, error: type[Exception]
) -> None:
    async with DLedgerClient(["127.0.0.1:1"], "g") as client:
        with pytest.raises(error, match="index"):
            await client.get(value)
        for read in (client.get_range, client.read_batches):
            with pytest.raises(error, match="first"):
                read(value)
            with pytest.raises(error, match="last"):
                read(0, value)
        with pytest.raises(error, match="first"):
            client.tail(value)


async def test_a_range_that_ends_before_it_begins_is_refused_unless_it_is_just_empty() -> None:
    async with DLedgerClient(["127.0.0.1:1"], "g") as client:
        for read in (client.get_range, client.read_batches):
            with pytest.raises(
                ValueError, match="last, 3, is before first, 5; the last of an empty range is 4"
            ):
                read(5, 3)
            assert [entry async for entry in read(5, 4)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", str(INDEX_MAX + 1)],
        ["get", f"0..{INDEX_MAX + 1}"],
        ["get", "99999999999999999999999"],
        ["tail", "--from", str(INDEX_MAX + 1)],
    ],
)
def test_a_command_with_an_index_that_no_log_can_have_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        raise SystemExit(main([*arguments, "--servers", "127.0.0.1:1", "--group", "g"]))

    assert exited.value.code == 2
    assert str(INDEX_MAX) in capsys.readouterr().err, "it says what an index may be"
