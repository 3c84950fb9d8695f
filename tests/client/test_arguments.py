"""Values that no server can take are refused before anything is sent."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import AddressError, RefusedError
from dledger_client.sync import BlockingClient
from dledger_fake_server.group import Group

NOWHERE = ["127.0.0.1:1"]


@pytest.mark.parametrize(
    ("servers", "group", "error"),
    [
        (NOWHERE, 7, TypeError),
        (NOWHERE, "", ValueError),
        (NOWHERE, "x" * 256, ValueError),
        (NOWHERE, "\udcff", ValueError),
        ([7], "g", TypeError),
        (7, "g", TypeError),
        (["http://127.0.0.1:1"], "g", AddressError),
        (["1"], "g", AddressError),
    ],
)
def test_a_client_of_no_group_is_refused(servers: Any, group: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        DLedgerClient(servers, group)


def test_one_text_may_name_all_servers() -> None:
    client = DLedgerClient("a:1,b:2", "g")

    assert [str(server) for server in client.servers] == ["a:1", "b:2"]


@pytest.mark.parametrize("address", ["host", "host:", "host:0", "host:65536", ":1"])
def test_an_address_that_is_none_says_what_to_write(address: str) -> None:
    with pytest.raises(AddressError, match=r"expected HOST:PORT .* with a port of 1 to 65535"):
        DLedgerClient([address], "g")


def test_an_address_with_a_scheme_says_what_to_write() -> None:
    with pytest.raises(AddressError, match="write HOST:PORT, without http://"):
        DLedgerClient(["http://127.0.0.1:40912"], "g")


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_time_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="deadline_s"):
        Timing(deadline_s=value)


CALLS: list[tuple[Callable[[DLedgerClient], Awaitable[Any]], type[Exception]]] = [
    (lambda client: client.get(10**30), ValueError),
    (lambda client: client.get(-1), ValueError),
    (lambda client: client.get("x"), TypeError),  # type: ignore[arg-type]
    (lambda client: client.get(True), TypeError),
    (lambda client: client.set_register(1 << 31, 0), ValueError),
    (lambda client: client.set_register(0, "1"), TypeError),  # type: ignore[arg-type]
    (lambda client: client.read_register(-(1 << 31) - 1), ValueError),
    (lambda client: client.transfer(""), ValueError),
    (lambda client: client.transfer(None), TypeError),  # type: ignore[arg-type]
    (lambda client: client.transfer("n1", term=-1), ValueError),
    (lambda client: client.change_membership("ADD_LEARNER", "n1"), TypeError),  # type: ignore[arg-type]
    (lambda client: client.get(0, deadline_s=-1), ValueError),
    (lambda client: client.get(0, deadline_s=float("nan")), ValueError),
    (lambda client: client.bounds(deadline_s="1"), TypeError),  # type: ignore[arg-type]
    (lambda client: client.transfer("n1", deadline_s=0), ValueError),
    (lambda client: client.append(b"x", deadline_s=0), ValueError),
    (lambda client: client.append_batch([b"x"], deadline_s=0), ValueError),
    (lambda client: anext(client.append_all([b"x"], deadline_s=0)), ValueError),
    (lambda client: anext(client.get_range(0, deadline_s=0)), ValueError),
]


@pytest.mark.parametrize("bodies", [b"text", "text", [b"x", 7], [None]])
async def test_a_batch_of_other_things_than_bytes_says_what_a_body_is(
    group: Group, bodies: Any
) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(TypeError, match="a body must be bytes, not "):
            await client.append_batch(bodies)


@pytest.mark.parametrize(("call", "error"), CALLS)
async def test_a_value_that_no_server_can_take_is_refused_at_once(
    group: Group, call: Callable[[DLedgerClient], Awaitable[Any]], error: type[Exception]
) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(error):
            await call(client)

    assert not any(member.connections for member in group.members.values())
    assert not group["n0"].metadata_requested.is_set()


@pytest.mark.parametrize("in_flight", [0, "x", 1.5, 1 << 40])
async def test_in_flight_must_be_a_number_above_0(group: Group, in_flight: Any) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises((TypeError, ValueError), match="in_flight"):
            client.append_all([b"x"], in_flight=in_flight)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "9223372036854775808"], "9223372036854775808 is no index; an index is 0 to"),
        (["tail", "--from", "x"], "'x' is invalid; expected a whole number, 0 or more"),
        (["tail", "--count", "0"], "'0' is invalid; expected a whole number, 1 or more"),
        (["append", "--deadline", "0"], "'0' is invalid; expected a number of seconds, above 0"),
        (["register", "get", "2147483648"], "-2147483648 to 2147483647"),
        (["status", "--http-port", "65536"], "expected a whole number, 1 to 65535"),
    ],
)
def test_an_absurd_number_on_the_command_line_is_a_usage_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([*arguments, "--servers", NOWHERE[0], "--group", "g"])
    except SystemExit as ended:
        code = int(ended.code or 0)

    captured = capsys.readouterr()
    assert code == 2
    assert message in captured.err
    assert captured.err.count("\n") == 1


async def test_a_register_of_a_group_without_one_is_refused_and_nothing_is_appended(
    group: Group,
) -> None:
    async with DLedgerClient(group.servers, "g0") as client:
        with pytest.raises(RefusedError, match="g0 does not run the register state machine"):
            await client.set_register(13, 31)

    assert not group.log


def test_a_blocking_client_can_be_opened_again_but_not_twice(group_in_thread: Group) -> None:
    client = BlockingClient(group_in_thread.servers, "g0")
    for number in range(2):
        with client:
            assert client.append(b"x").index == number
            with pytest.raises(RuntimeError, match="open already"):
                client.__enter__()
