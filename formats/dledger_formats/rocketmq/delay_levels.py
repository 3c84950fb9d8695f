"""The delay levels of RocketMQ: a message with DELAY=n is delivered this long after it is stored.

Level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX.
"""

from typing import Final

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
DELAYS_MS: Final = (
    1000, 5000, 10_000, 30_000,
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    _HOUR_MS, 2 * _HOUR_MS,
)  # fmt: skip
"""Level 1 first. Java's option `messageDelayLevel` can change them, but should not be used."""
LEVEL_MAX: Final = len(DELAYS_MS)

assert LEVEL_MAX == 18


def delivery_timestamp_ms(level: int, store_timestamp_ms: int) -> int:
    """Return when a message of this level, at least 1, is due. Higher levels count as the last."""
    return store_timestamp_ms + DELAYS_MS[min(level, LEVEL_MAX) - 1]
