"""JSON that Python's reader takes and nobody should: each form is refused."""

import pytest

from dledger_formats.json_objects import DEPTH_MAX, FormatError, parse

TRAPS = {
    "key twice": (b'{"a":1,"b":{"c":1,"c":2}}', "comes twice"),
    "key twice, once escaped": (rb'{"a":1,"\u0061":2}', "comes twice"),
    "many keys, the last twice": (
        b"{%s}" % b",".join(b'"%d":1' % (k % 99_999) for k in range(100_000)),
        "comes twice",
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
def test_a_trap_is_refused_with_its_reason(raw: bytes, word: str) -> None:
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
def test_what_only_looks_like_a_trap_is_read(raw: bytes) -> None:
    assert parse(raw)
