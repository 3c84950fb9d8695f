"""The tags that a pull asks for, as the codes of the consume queue (`FilterAPI` of Java)."""

from typing import Final

from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq import pulls
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consume_queue import java_hash
from dledger_formats.rocketmq.consumer_groups import Subscription

TAGS_MAX: Final = 1024


def codes_of(subscription: str | None) -> frozenset[int] | None:
    """Return the codes of the wanted tags; None for all messages. Raises ValueError.

    Codes are hashes: a client compares the tags themselves, so a few more messages do no harm.
    """
    text = (subscription or "").strip()
    if text in ("", pulls.ALL_TAGS):
        return None
    tags = [tag for part in text.split("||") if (tag := part.strip())]
    if not tags or len(tags) > TAGS_MAX:
        raise ValueError(f"{len(tags)} tags; 1 to {TAGS_MAX} are allowed")
    return frozenset(java_hash(tag.encode(errors="replace")) for tag in tags)


def wanted_codes(subscription: Subscription) -> frozenset[int] | None:
    """Return the codes of the tags that a subscription wants. Raises RefusedError."""
    if subscription.expression_type not in (None, "", pulls.TAG) or subscription.class_filter_mode:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            "messages are filtered by tags only, not by "
            f"{str(subscription.expression_type)[:30]!r}",
        )
    try:
        return codes_of(subscription.sub_string)
    except ValueError as error:
        raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
