"""The columns `key` and `value`, by the decoders of compaction."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.log import disk
from dledger_formats.protocol import register
from dledger_formats.rocketmq import properties
from dledger_formats.rocketmq.message_record import MessageRecord, encode
from dledger_logs.histories import small_shape
from dledger_logs.layout import manifest
from dledger_logs.write import Entry, write_log
from dledger_scan.log_rows import member_rows, members, rows_of
from pyspark_dledger.columns import default_schema
from pyspark_dledger.keys import DecoderError, decoder
from pyspark_dledger.log_view import LogView
from pyspark_dledger.options import OptionError, parse
from pyspark_dledger.pairs import pairs

COLUMNS = {"index": "bigint", "key": "binary", "value": "binary"}


def message(body: bytes, keys: str = "order-7") -> bytes:
    named = properties.encode({properties.KEYS: keys} if keys else {"x": "y"}).encode()
    return bytes(encode(MessageRecord("orders", 3, 0, 0, body, properties=named)))


BODIES: Mapping[str, Sequence[tuple[bytes, bytes | None, bytes | None]]] = {
    "register": [
        (register.SET.pack(13, 31), b"\r\0\0\0", b"\x1f\0\0\0"),
        (b"seven..", None, None),
    ],
    "kv": [(b"k=v=w", b"k", b"v=w"), (b"k=", b"k", None), (b"=v", b"", b"v"), (b"k", None, None)],
    "json:id": [
        (b'{"id": "7"}', b"7", b'{"id": "7"}'),
        (b'{"id": 7, "n": 1}', b"7", b'{"id": 7, "n": 1}'),
        (b'{"id": 7, "deleted": true}', b"7", None),
        (b'{"n": 7}', None, None),
        (b"\xff", None, None),
    ],
    "rocketmq": [
        (message(b"paid"), b"order-7", b"paid"),
        (message(b""), b"order-7", None),
        (message(b"paid", keys=""), None, None),
        (b"no message", None, None),
    ],
}


@pytest.mark.parametrize("name", BODIES)
def test_a_decoder_tells_key_and_value_and_finds_a_key_where_compaction_does(name: str) -> None:
    for body, key, value in BODIES[name]:
        found, kept = pairs(name)(body), decoder(name)(body)

        assert (found.key if found else None, found.value if found else None) == (key, value)
        assert (found is None) == (kept is None)
        if found is not None and kept is not None:
            assert (found.value is None) == kept.is_tombstone


@pytest.mark.parametrize("view", ["log", "members"])
@pytest.mark.parametrize("name", BODIES)
def test_the_columns_have_what_the_decoder_tells_and_nulls_elsewhere(
    tmp_path: Path, name: str, view: str
) -> None:
    entries = [Entry(term=1, body=body) for body, _, _ in BODIES[name]]
    first = Entry(term=1, body=b"", magic=disk.NOOP)
    log = write_log(tmp_path / "n0", [first, *entries], small_shape())
    read = rows_of if view == "log" else member_rows
    with members({"n0": log}) as path:
        rows = read(path, COLUMNS, decoder=name)

    expected = [(None, None), *((key, value) for _, key, value in BODIES[name])]
    assert [(row["key"], row["value"]) for row in rows] == expected


def test_your_own_function_is_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_keys_of_bodies.py").write_text(
        "def first(body):\n"
        "    if body == b'fail': raise ValueError('no')\n"
        "    return (body[:1], body.endswith(b'!')) if body else None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    pair = pairs("my_keys_of_bodies:first")

    assert pair(b"") is None
    assert pair(b"ab") == (b"a", b"ab")
    assert pair(b"ab!") == (b"a", None)
    with pytest.raises(DecoderError, match="failed: ValueError"):
        pair(b"fail")


def test_a_query_has_the_columns_if_it_names_none_and_a_decoder() -> None:
    for view in ("log", "members"):
        given = {"path": "n0=http://h:1", "view": view}
        assert "key" not in default_schema(parse(given))
        assert default_schema(parse({**given, "decoder": "kv"})).endswith(
            "key binary, value binary"
        )


@pytest.mark.parametrize("view", ["log", "members"])
def test_the_columns_need_a_decoder(tmp_path: Path, view: str) -> None:
    read = rows_of if view == "log" else member_rows
    with pytest.raises(ValueError, match="column key needs the option decoder"):
        read("n0=http://h:1", COLUMNS)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"decoder": "jsonx"}, "decoder is 'jsonx': there is no decoder"),
        ({"decoder": "no_such_module:f"}, "cannot be loaded"),
        ({"decoder": "kv", "level": "headers"}, "needs level=full"),
    ],
)
def test_a_decoder_that_cannot_be_used_is_refused(given: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        LogView(COLUMNS, parse({"path": "n0=http://h:1", **given}))


def test_the_view_members_reads_folders_too(tmp_path: Path) -> None:
    log = write_log(tmp_path / "n0", [Entry(term=1, body=b"k=v")] * 20, small_shape())
    (log.root / "checkpoint").write_text("committedIndex=19\n")
    assert manifest(log, "n0").status.committed_index == 19

    rows = member_rows(f"n0={log.root}", COLUMNS, decoder="kv")

    assert [(row["index"], row["key"]) for row in rows] == [(k, b"k") for k in range(20)]
