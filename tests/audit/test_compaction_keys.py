"""The decoders of keys."""

import sys
from pathlib import Path

import pytest

from dledger_formats.protocol import register
from dledger_formats.rocketmq import properties
from dledger_formats.rocketmq.message_record import MessageRecord, encode
from pyspark_dledger.keys import DecoderError, Key, decoder


@pytest.mark.parametrize(
    ("name", "body", "key"),
    [
        ("register", register.SET.pack(13, 31), Key(b"\r\0\0\0", False)),
        ("register", b"seven..", None),
        ("kv", b"k=v", Key(b"k", False)),
        ("kv", b"k=v=w", Key(b"k", False)),
        ("kv", b"k=", Key(b"k", True)),
        ("kv", b"=v", Key(b"", False)),
        ("kv", b"k", None),
        ("kv", b"", None),
        ("json:id", b'{"id": "7", "n": 1}', Key(b"s7", False)),
        ("json:id", b'{"id": 7}', Key(b"i7", False)),
        ("json:id", b'{"id": 7, "deleted": true}', Key(b"i7", True)),
        ("json:id", b'{"id": 7, "deleted": 1}', Key(b"i7", False)),
        ("json:id", b'{"id": true}', None),
        ("json:id", b'{"id": 7.0}', None),
        ("json:id", b'{"id": null}', None),
        ("json:id", b'{"id": 1, "id": 2}', None),
        ("json:id", b'["id"]', None),
        ("json:id", b"\xff", None),
        ("json:a:b", b'{"a:b": "x"}', Key(b"sx", False)),
    ],
)
def test_a_decoder_finds_the_key(name: str, body: bytes, key: Key | None) -> None:
    assert decoder(name)(body) == key


def message(topic: str, body: bytes, queue_id: int = 3, keys: str = "order-7") -> bytes:
    pairs = {properties.KEYS: keys} if keys else {"x": "y"}
    record = MessageRecord(
        topic, queue_id, 0, 0, body, properties=properties.encode(pairs).encode()
    )
    return bytes(encode(record))


def test_the_key_of_a_message_is_its_topic_queue_and_keys() -> None:
    decode = decoder("rocketmq")
    one = decode(message("orders", b"paid"))
    assert one is not None
    assert not one.is_tombstone
    assert decode(message("orders", b"sent")) == one
    assert decode(message("orders", b"")) == Key(one.key, True)
    others = [message("orders", b"x", queue_id=4), message("order", b"x"),
              message("orders", b"x", keys="order-8")]  # fmt: skip
    assert len({one.key, *(decode(other).key for other in others)}) == 4  # type: ignore[union-attr]


def test_other_messages_have_no_key() -> None:
    decode = decoder("rocketmq")
    system = message("SCHEDULE_TOPIC_XXXX", b"later")
    assert [decode(body) for body in (message("t", b"x", keys=""), system, b"no message")] == [
        None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "",
        "json",
        "json:",
        "os",
        "os:",
        "nowhere:f",
        "os:nothing",
        ":f",
        "..:x",
        ".x:y",
        "x.:y",
        "os:sep",
    ],
)
def test_an_unknown_decoder_is_refused(name: str) -> None:
    with pytest.raises(DecoderError, match=r"no decoder|cannot be loaded"):
        decoder(name)


@pytest.mark.parametrize("statement", ["1 / 0", "raise SystemExit(3)", "def x(:"])
def test_a_decoder_whose_module_fails_is_refused(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_keys.py").write_text(statement + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(DecoderError, match="broken_keys:f cannot be loaded"):
        decoder("broken_keys:f")


def test_a_custom_decoder_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_keys.py").write_text(
        "def first(body):\n"
        "    if body == b'fail': raise ValueError('no')\n"
        "    return {b'': None, b'x': (b'x', True), b'bad': 'bad'}.get(body, body[:1])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        decode = decoder("my_keys:first")
        found = [decode(body) for body in (b"", b"abc", b"x")]
        assert found == [None, Key(b"a", False), Key(b"x", True)]
        with pytest.raises(DecoderError, match="must return"):
            decode(b"bad")
        with pytest.raises(DecoderError, match="failed"):
            decode(b"fail")
    finally:
        sys.modules.pop("my_keys", None)
