"""The register: DLedger's bodies, and the request of this project."""

import pytest

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.register import (
    NUMBER_MAX,
    NUMBER_MIN,
    SET,
    ReadRegisterRequest,
    ReadRegisterResponse,
)


def test_an_entry_that_sets_a_register_has_the_bytes_of_dledger_s_example() -> None:
    assert SET.pack(13, 31) == b"\x0d\0\0\0\x1f\0\0\0"
    assert SET.unpack(SET.pack(NUMBER_MIN, NUMBER_MAX)) == (NUMBER_MIN, NUMBER_MAX)


def test_a_request_carries_its_key() -> None:
    raw = ReadRegisterRequest(group="g", remote_id="n0", key=-7).to_json()

    assert raw == b'{"code":200,"group":"g","remoteId":"n0","term":-1,"key":-7}'
    assert ReadRegisterRequest.from_json(raw).key == -7


@pytest.mark.parametrize("key", [NUMBER_MIN - 1, NUMBER_MAX + 1])
def test_a_key_of_more_than_32_bits_is_refused(key: int) -> None:
    with pytest.raises(FormatError):
        ReadRegisterRequest.from_json(b'{"key":%d}' % key)


def test_a_register_that_was_never_set_has_no_value() -> None:
    assert b"value" not in ReadRegisterResponse(group="g", key=1).to_json()
    assert ReadRegisterResponse.from_json(b'{"code":200,"key":1}').value is None
    assert ReadRegisterResponse(group="g", key=1, value=0).to_json().endswith(b'"value":0}')
