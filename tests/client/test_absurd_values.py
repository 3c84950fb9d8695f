"""Every parameter of the Python clients, with values that no server can take.

Each is refused with TypeError or ValueError, which names the parameter, before anything is sent.
`test_absurd_arguments.py` does the same for the command line.
"""

import dataclasses
import inspect
import math
from collections.abc import Iterator
from typing import Any

import pytest

from dledger_client import BlockingClient, ChangeKind, DLedgerClient, Timing
from dledger_fake_server.group import Group

VAST = 10**5000
"""More digits than Python converts to text."""
NO_TEXTS: list[Any] = ["", "x" * 256, "g\0", "\udcff", 7, b"n1", None]
NO_TIMES: list[Any] = [0, -1, -0.5, math.nan, math.inf, 10**400, 1e300, "1", b"1", True, [1]]
NO_INDEXES: list[Any] = [-1, 1 << 63, VAST, -VAST, "1", 1.5, True, b"1", [1], math.nan]
NO_NUMBERS: list[Any] = [1 << 31, -(1 << 31) - 1, VAST, "1", 1.5, True, None]
NO_BODIES: list[Any] = ["text", 7, None, bytearray(b"x"), [b"x"]]
NO_FLAGS: list[Any] = ["no", "", 0, 1, None]

CLIENT: dict[str, list[Any]] = {
    "servers": [
        [],
        "",
        [7],
        7,
        None,
        ["1"],
        ["http://h:1"],
        ["h:0"],
        ["h:65536"],
        "h:1," * 65,
        {},
        [f"h:{'9' * 5000}"],
    ],
    "group": NO_TEXTS,
    "follow_leader": NO_FLAGS,
    "at_least_once": NO_FLAGS,
    "idempotent": NO_FLAGS,
    "read_from": ["", "nobody", "LEADER", 7, None],
    "consistency": ["", "strong", 7, None],
    "timing": [5, "5", {}, (1, 2)],
    "admin_token": [7, None, b"token", "\udcff", "x" * 5000],
}
"""Parameters of both clients, with wrong values of each."""
ONLY_ASYNCIO: dict[str, list[Any]] = {"random": [7, "x", None]}
ONLY_BLOCKING: dict[str, list[Any]] = {"linger_s": [-1, math.nan, math.inf, 10**400, "1", None]}
METHODS: dict[str, dict[str, list[Any]]] = {
    "metadata": {},
    "append": {"body": NO_BODIES, "deadline_s": NO_TIMES},
    "append_batch": {
        "bodies": [7, None, *([body] for body in NO_BODIES), b"text", "text", [b"x"] * 8193],
        "deadline_s": NO_TIMES,
    },
    "append_in_order": {
        "bodies": [7, None, *([body] for body in NO_BODIES), b"text", "text"],
        "deadline_s": NO_TIMES,
    },
    "append_all": {
        "bodies": [7, None, *([body] for body in NO_BODIES), b"text", "text"],
        "in_flight": [0, -1, VAST, "1", 1.5, True, None, 1 << 40],
        "deadline_s": NO_TIMES,
    },
    "get": {"index": [*NO_INDEXES, None], "deadline_s": NO_TIMES},
    "get_range": {"first": [*NO_INDEXES, None], "last": NO_INDEXES, "deadline_s": NO_TIMES},
    "read_batches": {"first": [*NO_INDEXES, None], "last": NO_INDEXES, "deadline_s": NO_TIMES},
    "tail": {"first": NO_INDEXES, "deadline_s": NO_TIMES},
    "bounds": {"deadline_s": NO_TIMES},
    "set_register": {"key": NO_NUMBERS, "value": NO_NUMBERS, "deadline_s": NO_TIMES},
    "read_register": {"key": NO_NUMBERS, "deadline_s": NO_TIMES},
    "register_producer": {"deadline_s": NO_TIMES},
    "resume_producer": {
        "producer": [*NO_INDEXES, None],
        "acknowledged": [*NO_INDEXES, None, (1 << 63) - 1, (1 << 63) - 1024],
        "sent": [-1, 5000, VAST, "1", 1.5, True, None],
    },
    "transfer": {"transferee_id": NO_TEXTS, "term": NO_INDEXES, "deadline_s": NO_TIMES},
    "membership": {"deadline_s": NO_TIMES},
    "change_membership": {
        "change": ["ADD_LEARNER", "add", 0, None, ChangeKind, True, [ChangeKind.REMOVE]],
        "member_id": NO_TEXTS,
        "deadline_s": NO_TIMES,
    },
}
"""Methods of both clients, and wrong values of each of their parameters."""
RIGHT: dict[str, Any] = {
    "body": b"x", "bodies": [b"x"], "index": 0, "first": 0, "key": 1, "value": 1, "producer": 1,
    "transferee_id": "n1", "change": ChangeKind.PROMOTE, "member_id": "n1",
}  # fmt: skip
"""A right value of each parameter that a call needs."""


def public_methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(value)
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def wrong_calls() -> Iterator[Any]:
    for method, parameters in METHODS.items():
        for parameter, values in parameters.items():
            for number, value in enumerate(values):
                yield pytest.param(method, parameter, value, id=f"{method}-{parameter}-{number}")


def wrong_settings(*tables: dict[str, list[Any]]) -> Iterator[Any]:
    for parameter, values in (item for table in tables for item in table.items()):
        for number, value in enumerate(values):
            yield pytest.param(parameter, value, id=f"{parameter}-{number}")


def arguments_of(kind: type, method: str, parameter: str, value: Any) -> dict[str, Any]:
    """Return arguments that are right but for one."""
    needed = public_methods(kind)[method].parameters.values()
    given = {
        one.name: RIGHT[one.name]
        for one in needed
        if one.default is inspect.Parameter.empty and one.name != "self"
    }
    return given | {parameter: value}


@pytest.mark.parametrize("kind", [DLedgerClient, BlockingClient])
def test_the_tables_have_every_parameter(kind: type) -> None:
    only = ONLY_ASYNCIO if kind is DLedgerClient else ONLY_BLOCKING
    found = {
        method: set(signature.parameters) - {"self"}
        for method, signature in public_methods(kind).items()
    }

    assert {method: set(parameters) for method, parameters in METHODS.items()} == found
    assert set(CLIENT | only) == set(inspect.signature(kind).parameters)


def test_wrong_times_are_refused_for_each_part_of_a_timing() -> None:
    for item in dataclasses.fields(Timing):
        for value in NO_TIMES:
            with pytest.raises((TypeError, ValueError), match=item.name):
                Timing(**{item.name: value})


@pytest.mark.parametrize(("parameter", "value"), [*wrong_settings(CLIENT, ONLY_ASYNCIO)])
def test_a_client_is_not_made_with_a_wrong_setting(parameter: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=words_for(parameter)):
        DLedgerClient(**{"servers": "127.0.0.1:1", "group": "g0"} | {parameter: value})


@pytest.mark.parametrize(("parameter", "value"), [*wrong_settings(CLIENT, ONLY_BLOCKING)])
def test_a_blocking_client_is_not_made_with_a_wrong_setting(parameter: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=words_for(parameter)):
        BlockingClient(**{"servers": "127.0.0.1:1", "group": "g0"} | {parameter: value})


@pytest.mark.parametrize(("method", "parameter", "value"), [*wrong_calls()])
async def test_a_wrong_value_is_refused_and_nothing_is_sent(
    method: str, parameter: str, value: Any, group: Group
) -> None:
    arguments = arguments_of(DLedgerClient, method, parameter, value)
    idempotent = method == "resume_producer"
    async with DLedgerClient(group.servers, "g0", idempotent=idempotent) as client:
        with pytest.raises((TypeError, ValueError), match=words_for(parameter)):
            await first_result(client, method, arguments)

    assert not any(member.connections for member in group.members.values())
    assert not any(member.metadata_requested.is_set() for member in group.members.values())


def test_a_blocking_client_refuses_the_same_and_sends_nothing(group_in_thread: Group) -> None:
    for idempotent in (False, True):
        with BlockingClient(group_in_thread.servers, "g0", idempotent=idempotent) as client:
            for call in wrong_calls():
                method, parameter, value = call.values
                if (method == "resume_producer") != idempotent:
                    continue
                arguments = arguments_of(BlockingClient, str(method), str(parameter), value)
                with pytest.raises((TypeError, ValueError), match=words_for(str(parameter))):
                    next(getattr(client, str(method))(**arguments))
    members = group_in_thread.members.values()

    assert not any(member.connections for member in members)
    assert not any(member.metadata_requested.is_set() for member in members)


async def first_result(client: DLedgerClient, method: str, arguments: dict[str, Any]) -> Any:
    """Return what a method returns, or what its generator yields first."""
    called = getattr(client, method)(**arguments)
    return await (called if inspect.isawaitable(called) else anext(called))


def words_for(parameter: str) -> str:
    """Return what a message must have, to tell which parameter is meant."""
    return {"bodies": "bod(y|ies)", "body": "body", "servers": "server"}.get(parameter, parameter)
