"""The tags that a pull asks for, as the codes of the consume queue (`FilterAPI` of Java)."""

from collections.abc import Sized
from functools import lru_cache
from typing import Final

from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.protocol.frames import HEADER_BYTES_MAX
from dledger_formats.rocketmq import pulls
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consume_queue import java_hash
from dledger_formats.rocketmq.consumer_groups import Subscription

TAGS_MAX: Final = 1024
"""A member of the previous release cannot apply a log that has a longer list of tags."""
LONG_LETTERS: Final = 256
"""Shorter texts take a tenth of a ms. They are not kept: they would push the long ones out."""
KEPT_LETTERS_MAX: Final = HEADER_BYTES_MAX
"""A pull cannot contain a longer text."""
KEPT_MAX: Final = 128
"""Long texts whose codes are kept. 1,024 tags take 5 ms, and 100 KB of memory."""


def codes_of(subscription: str | None) -> frozenset[int] | None:
    """Return the codes of the wanted tags; None for all messages. Raises ValueError.

    Codes are hashes: a client compares the tags themselves, so a few more messages do no harm.
    """
    text = (subscription or "").strip()
    if text in ("", pulls.ALL_TAGS):
        return None
    if LONG_LETTERS <= len(text) <= KEPT_LETTERS_MAX:
        return codes_of_long(text)
    return _codes_of(text)


def _codes_of(text: str) -> frozenset[int]:
    return frozenset(java_hash(tag.encode(errors="replace")) for tag in _tags_of(text))


def _tags_of(text: str) -> list[str]:
    tags = [tag for part in text.split("||") if (tag := part.strip())]
    if not tags:
        raise ValueError(f"0 tags; 1 to {TAGS_MAX} are allowed")
    _check_count(tags)
    return tags


def _check_count(tags: Sized) -> None:
    if len(tags) > TAGS_MAX:
        raise ValueError(f"{len(tags)} tags; 1 to {TAGS_MAX} are allowed")


codes_of_long = lru_cache(maxsize=KEPT_MAX)(_codes_of)
"""Returns the codes of a long text as `codes_of` does, and keeps them for the next pull."""


def wanted_codes(subscription: Subscription) -> frozenset[int] | None:
    """Return the codes of the tags that a subscription wants. Raises RefusedError."""
    _check_type(subscription)
    try:
        return codes_of(subscription.sub_string)
    except ValueError as error:
        raise _unreadable(error) from error


def check(subscription: Subscription) -> None:
    """Refuse what `wanted_codes` refuses, in less time, and lists that are too long for the log.

    Raises RefusedError.
    """
    _check_type(subscription)
    text = subscription.sub_string.strip()
    try:
        _check_count(subscription.tags_set)
        _check_count(subscription.code_set)
        if text not in ("", pulls.ALL_TAGS):
            _tags_of(text)
    except ValueError as error:
        raise _unreadable(error) from error


def _check_type(subscription: Subscription) -> None:
    if subscription.expression_type not in (None, "", pulls.TAG) or subscription.class_filter_mode:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            "messages are filtered by tags only, not by "
            f"{str(subscription.expression_type)[:30]!r}",
        )


def _unreadable(error: ValueError) -> RefusedError:
    return RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
