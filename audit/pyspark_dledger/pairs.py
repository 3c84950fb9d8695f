"""The columns `key` and `value`: what the decoders of `keys` find in an entry, for people to read.

    register          4 bytes of key, and 4 bytes of value
    kv                the bytes before and after the first `=`
    json:FIELD        the text or the digits of FIELD; the whole object
    rocketmq          the property KEYS; the body of the message
    module:function   the key that the function returns; the whole body

An entry that deletes its key has no value. An entry whose body belongs to no key has neither. Keys
that compaction distinguishes may look the same here: a text and a number in JSON, or the same KEYS
in two topics.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from pyspark_dledger.keys import DecoderError, Key, decoder
from pyspark_dledger.options import OptionError, Options


class Pair(NamedTuple):
    """Key and value of one entry."""

    key: bytes
    value: bytes | None
    """None if the entry deletes its key."""


Pairs: TypeAlias = Callable[[bytes], Pair | None]
_Read: TypeAlias = Callable[[bytes, Key], tuple[bytes, bytes]]


def pairs(name: str) -> Pairs:
    """Return a function from bodies to pairs, for a decoder's name. Raises DecoderError."""
    decode, read = decoder(name), _read(name)

    def pair(body: bytes) -> Pair | None:
        key = decode(body)
        if key is None:
            return None
        shown, value = read(body, key)
        return Pair(shown, None if key.is_tombstone else value)

    return pair


def pairs_of(options: Options) -> Pairs | None:
    """Return a function from bodies to pairs, for a query; None without a decoder."""
    return pairs(options.decoder) if options.decoder else None


def check_decoder(options: Options) -> None:
    """Raise OptionError if the decoder of a query does not exist."""
    try:
        pairs_of(options)
    except DecoderError as error:
        raise OptionError(f"decoder is {options.decoder!r}: {error}") from error


def _read(name: str) -> _Read:
    if name == "register":
        return lambda body, key: (key.key, body[len(key.key) :])
    if name == "kv":
        return lambda body, key: (key.key, body[len(key.key) + 1 :])
    if name == "rocketmq":
        return _of_message
    if name.startswith("json:"):
        return lambda body, key: (key.key[1:], body)  # the first byte is the type
    return lambda body, key: (key.key, body)


def _of_message(body: bytes, _: Key) -> tuple[bytes, bytes]:
    from dledger_formats.rocketmq import message_record, properties

    record = message_record.decode(body)
    return properties.find(record.properties, properties.KEYS.encode()) or b"", record.body
