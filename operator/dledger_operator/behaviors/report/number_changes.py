"""Distinguishes a status in which only a number has changed from one with news. Pure.

Messages contain numbers: how far a member has healed, how many entries it lacks. The consume queues
of a broker lack some entries at most moments. A status in which only such a number differs is not
written on each run.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.report.broker_status import BROKER_KEY, UNBUILT_KEY

NUMBERS_ONLY_S_MIN: Final = 60.0
"""How soon a status in which only numbers differ is written again. Metrics show those sooner."""
_NUMBER: Final = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?")
"""A number, but not a part of a name such as n2 or flights-2."""


def without_numbers(message: str) -> str:
    """Return a message in which `#` replaces every number."""
    return _NUMBER.sub("#", message)


def differ_in_numbers_only(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two statuses are the same except for numbers in their messages, and for how
    far consume queues are built.
    """
    return _without_numbers(one) == _without_numbers(other)


def _without_numbers(status: Mapping[str, Any]) -> Manifest:
    """Return a status without these numbers."""
    conditions = [
        {**each, "message": without_numbers(each.get("message", ""))}
        for each in status.get("conditions") or []
    ]
    without = {**status, "conditions": conditions}
    if message := (status.get("plan") or {}).get("message"):
        without["plan"] = status["plan"] | {"message": without_numbers(message)}
    if BROKER_KEY in status:
        broker = status[BROKER_KEY]
        without[BROKER_KEY] = {key: broker[key] for key in broker if key != UNBUILT_KEY}
    return without
