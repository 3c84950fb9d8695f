"""JSON that Python's reader takes and a member must not: each form is refused, in every request."""

import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import dledger_formats.protocol
import dledger_node.remoting
from dledger_formats import json_objects
from dledger_formats.http.status import Role
from dledger_formats.json_objects import DEPTH_MAX, FormatError, parse
from dledger_formats.protocol.requests import Request

TRAPS = {
    "key twice": (b'{"a":1,"b":{"c":1,"c":2}}', "occurs twice"),
    "key twice, once escaped": (rb'{"a":1,"\u0061":2}', "occurs twice"),
    "many keys, the last twice": (
        b"{%s}" % b",".join(b'"%d":1' % (k % 99_999) for k in range(100_000)),
        "occurs twice",
    ),
    "NaN": (b'{"a":NaN}', "NaN"),
    "minus infinity": (b'{"a":-Infinity}', "-Infinity"),
    "beyond a double": (b'{"a":1e999}', "too large"),
    "ten thousand digits": (b'{"a":%s}' % (b"9" * 10_000), "4300"),
    "half a surrogate pair": (rb'{"a":"\ud800"}', "surrogates"),
    "half a surrogate pair in a key": (rb'{"\ud800":1}', "surrogates"),
    "bytes that are no UTF-8": (b'{"a":"\xff"}', "utf-8"),
    "overlong UTF-8": (b'{"a":"\xc0\xaf"}', "utf-8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "char 0"),
    "a control character": (b'{"a":"\x00"}', "control"),
    "nothing": (b"", "char 0"),
    "something behind": (b"{}{}", "Extra"),
    "one bracket too deep": (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), "brackets"),
    "a million brackets": (b"[" * 1_000_000, "brackets"),
    "a million objects": (b'{"a":' * 1_000_000, "brackets"),
}


@pytest.mark.parametrize(("raw", "word"), TRAPS.values(), ids=TRAPS.keys())
def test_ambiguous_json_is_refused_with_a_reason(raw: bytes, word: str) -> None:
    with pytest.raises(FormatError, match=word):
        parse(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * DEPTH_MAX + b"]" * DEPTH_MAX,
        b"[%s]" % b",".join([b"[]"] * 1000),
        b'{"a":"%s"}' % (b"[{" * 1000),
        rb'{"a":"%s"}' % (rb"\"[{\\" * 1000),
        rb'{"a":"\ud83d\ude00"}',
        '{"a":"\N{GRINNING FACE}"}'.encode(),
    ],
    ids=["deep enough", "wide", "brackets in text", "escapes in text", "pair", "raw pair"],
)
def test_json_that_only_looks_ambiguous_is_read(raw: bytes) -> None:
    assert parse(raw)


# Requests.


def kinds_of_requests() -> list[type[Request]]:
    """Return every class of request in the package, also those of modules added later."""
    for module in pkgutil.iter_modules(dledger_formats.protocol.__path__):
        importlib.import_module(f"dledger_formats.protocol.{module.name}")
    found, classes = [Request], [Request]
    while classes:
        classes = [each for one in classes for each in one.__subclasses__()]
        found += classes
    return found


REQUESTS = kinds_of_requests()
KEYS = (
    b'"group":"g","remoteId":"n0","body":"AAAA","beginIndex":1,"producer":0,"sequence":1,"key":1,'
    b'"change":"REMOVE","memberId":"n1","transfereeId":"n1","bodies":["AAAA"],"maxSize":1'
)
"""Every key that a request may need."""


def test_every_request_of_the_protocol_is_tested_here() -> None:
    assert {kind.__name__ for kind in REQUESTS} == {
        "Request", "MetadataRequest", "AppendEntryRequest", "GetEntriesRequest", "FollowRequest",
        "AppendBatchRequest", "RegisterProducerRequest", "IdempotentAppendRequest",
        "LeadershipTransferRequest", "ChangeMembershipRequest", "ReadRegisterRequest",
        "IdempotentBatchEnvelope", "IdempotentBatchRequest", "ReadRequest", "ReadRangeRequest",
        "AdminRequest", "AppendCanaryRequest",
    }  # fmt: skip


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_a_sound_request_is_read_and_its_unknown_keys_are_ignored(kind: type[Request]) -> None:
    request = kind.from_json(b'{%s,"x":{"a":[1.5]}}' % KEYS)

    assert (request.group, request.remote_id) == ("g", "n0")


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("trap", [raw for raw, _ in TRAPS.values()], ids=TRAPS.keys())
def test_a_request_with_ambiguous_json_is_refused(kind: type[Request], trap: bytes) -> None:
    with pytest.raises(FormatError):
        kind.from_json(b'{%s,"x":%s}' % (KEYS, trap))


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("key", KEYS.split(b","))
def test_a_request_with_a_duplicate_key_is_refused(kind: type[Request], key: bytes) -> None:
    with pytest.raises(FormatError, match="occurs twice"):
        kind.from_json(b"{%s,%s}" % (KEYS, key))


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_every_request_uses_the_one_strict_decoder(kind: type[Request]) -> None:
    assert kind.from_json.__func__ is Request.from_json.__func__  # type: ignore[attr-defined]


DECODES_ELSEWHERE = {
    "append_reader.py": "the base64 between what was decoded strictly",
    "decoding.py": "the one place",
    "frames.py": "headers of frames",
    "headers.py": "headers of RocketMQ's C++ client, whose ext fields may be numbers",
    "long_body.py": "one string or one array of numbers, cut out of what is decoded strictly",
    "named_memberships.py": "JSON that must be as it would be written again",
}


@pytest.mark.parametrize("package", [dledger_formats.protocol, dledger_node.remoting])
def test_json_from_the_network_is_decoded_in_one_place(package: object) -> None:
    (folder,) = package.__path__  # type: ignore[attr-defined]
    decoding = {
        path.name
        for path in Path(folder).glob("*.py")
        if any(word in path.read_text() for word in ("json.decode", "json.Decoder", "json.loads"))
    }

    assert decoding <= DECODES_ELSEWHERE.keys()


@dataclass(frozen=True, kw_only=True)
class _Page:
    role: Role = Role.LEADER
    term: int = 0
    ready: bool = False
    peers: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize("value", ['"x"', '["x"]'])
@pytest.mark.parametrize("key", ["role", "term", "ready", "peers"])
def test_a_wrong_value_of_any_length_is_quoted_in_short(key: str, value: str) -> None:
    """Operators and commands show the error, and others may have written the page."""
    long_value = value.replace("x", "x" * 1_000_000)
    with pytest.raises(FormatError) as caught:
        json_objects.decode(_Page, f'{{"{key}":{long_value}}}'.encode())

    assert key in str(caught.value)
    assert len(str(caught.value)) < 300
