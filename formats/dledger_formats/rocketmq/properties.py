r"""Properties of a message: `name \x01 value \x02 …` in UTF-8, with or without the last \x02.

The rules are Java's (`MessageDecoder.string2messageProperties` of 5.3.3): a pair ends at the next
\x02; its name ends at the first \x01, and the value may have more of them; a pair without \x01,
without a name or without a value does not count; of two pairs with one name the last counts.
"""

from collections.abc import Mapping
from typing import Final

PROPERTIES_BYTES_MAX: Final = 32767
"""Java's limit: the length of the properties is a signed number of 16 bits."""
NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
WAIT: Final = "WAIT"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
SCHEDULED: Final = "DLEDGER_SCHEDULED"
"""Ours: `<level> <queue offset>`, which says which delayed message a delivered one was."""


def decode(text: str) -> dict[str, str]:
    """Return the properties by name, in the order of their first pairs."""
    found: dict[str, str] = {}
    for pair in text.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def encode(properties: Mapping[str, str]) -> str:
    r"""Return the properties as text, every pair with its \x02.

    Raises ValueError for a name or value that would be read as something else.
    """
    for name, value in properties.items():
        if not name or not value or NAME_END in name or PAIR_END in name + value:
            raise ValueError(f"the property {name[:50]!r} cannot be written: {value[:50]!r}")
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def find(encoded: bytes, name: bytes) -> bytes | None:
    """Return the value of one property, or None, without decoding the others."""
    key = name + b"\x01"
    end = len(encoded)
    while (at := encoded.rfind(key, 0, end)) >= 0:
        value_at = at + len(key)
        if at == 0 or encoded[at - 1] == 2:
            value_end = encoded.find(b"\x02", value_at)
            value = encoded[value_at : value_end if value_end >= 0 else len(encoded)]
            if value:
                return value
        end = at + len(key) - 1
    return None


def without(encoded: bytes, *names: bytes) -> bytes:
    r"""Return encoded properties without some, the others unchanged and each with its \x02."""
    if not any(name in encoded for name in names):
        return encoded if not encoded or encoded.endswith(b"\x02") else encoded + b"\x02"
    kept = [pair for pair in encoded.split(b"\x02") if pair.partition(b"\x01")[0] not in names]
    return b"".join(pair + b"\x02" for pair in kept if pair)
