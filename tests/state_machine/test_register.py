"""The register: the same entries result in the same state, whatever the batches."""

import io
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.protocol.register import NUMBER_MAX, NUMBER_MIN, SET
from dledger_formats.settings import NO_STATE_MACHINE, STATE_MACHINES
from dledger_node.state_machine import machines
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register

NUMBERS = st.integers(NUMBER_MIN, NUMBER_MAX)
KEYS = st.integers(0, 5) | NUMBERS
BODIES = st.lists(st.builds(SET.pack, KEYS, NUMBERS) | st.binary(max_size=20), max_size=60)


def entries(bodies: list[bytes]) -> list[CommittedEntry]:
    return [CommittedEntry(index, body) for index, body in enumerate(bodies)]


def dumped(register: Register) -> bytes:
    return b"".join(register.dump())


@given(bodies=BODIES, cuts=st.lists(st.integers(0, 60)))
def test_the_state_does_not_depend_on_the_batches(bodies: list[bytes], cuts: list[int]) -> None:
    whole, parts = Register(), Register()
    whole.apply(entries(bodies))
    for first, last in itertools.pairwise(sorted({0, len(bodies), *cuts})):
        parts.apply(entries(bodies)[first:last])

    assert dumped(whole) == dumped(parts)


@given(bodies=BODIES)
def test_a_key_has_the_value_that_was_set_last(bodies: list[bytes]) -> None:
    register = Register()
    register.apply(entries(bodies))
    model = dict(SET.unpack(body) for body in bodies if len(body) == SET.size)

    assert {key: register.get(key) for key in model} == model
    assert register.get(6) == model.get(6)


@given(bodies=BODIES, more=BODIES)
def test_a_loaded_state_goes_on_like_the_original(bodies: list[bytes], more: list[bytes]) -> None:
    register, loaded = Register(), Register()
    register.apply(entries(bodies))
    loaded.load(io.BytesIO(dumped(register)))
    for each in (register, loaded):
        each.apply(entries(more))

    assert dumped(loaded) == dumped(register)


def test_a_copy_does_not_change_with_the_original() -> None:
    register = Register()
    register.apply(entries([SET.pack(1, 10)]))
    copy = register.copy()
    register.apply(entries([SET.pack(1, 11), SET.pack(2, 20)]))

    assert (copy.get(1), copy.get(2)) == (10, None)
    assert (register.get(1), register.get(2)) == (11, 20)


def test_the_dump_format_does_not_change() -> None:
    register = Register()
    register.apply(entries([SET.pack(2, 5), SET.pack(-3, 7), SET.pack(2, -1)]))

    assert dumped(register).hex(" ", 4) == (
        "444c5245 47495354 01000000 02000000 02000000 ffffffff fdffffff 07000000"
    )


def test_many_keys_are_dumped_in_pieces() -> None:
    register, loaded = Register(), Register()
    register.apply(entries([SET.pack(key, key) for key in range(20_000)]))
    loaded.load(io.BytesIO(dumped(register)))

    assert len(list(register.dump())) == 4
    assert dumped(loaded) == dumped(register)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "0 bytes"),
        (b"DLREGIST\1\0\0\0", "12 bytes"),
        (b"DLREGISt\1\0\0\0\0\0\0\0", "expected a register"),
        (b"DLREGIST\2\0\0\0\0\0\0\0", "version 2"),
        (b"DLREGIST\1\0\0\0\1\0\0\0", "announces 1 keys, but the data has 0"),
        (b"DLREGIST\1\0\0\0\1\0\0\0" + bytes(7), "ends inside"),
        (b"DLREGIST\1\0\0\0\2\0\0\0" + bytes(16), "announces 2 keys, but the data has 1"),
    ],
)
def test_bytes_that_are_not_a_dump_are_rejected(raw: bytes, what: str) -> None:
    register = Register()
    register.apply(entries([SET.pack(1, 1)]))

    with pytest.raises(ValueError, match=what):
        register.load(io.BytesIO(raw))
    assert register.get(1) == 1


@pytest.mark.parametrize("name", sorted({*STATE_MACHINES} - {NO_STATE_MACHINE}))
def test_every_name_in_the_settings_makes_an_empty_machine(name: str) -> None:
    machine: Any = machines.make(name)

    assert b"".join(machine.dump()) == b"".join(machines.make(name).dump())
