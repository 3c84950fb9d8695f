"""The forms of a Spark master: this process, a Spark cluster, or Kubernetes. Needs no library."""

import re
from typing import Final

KUBERNETES: Final = "k8s://"
_LOCAL: Final = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?")
_ELSEWHERE: Final = re.compile(r"(spark|k8s)://\S+")


def is_local(master: str) -> bool:
    """Return whether tasks run in the process of the driver."""
    return _LOCAL.fullmatch(master) is not None


def is_master(text: str) -> bool:
    """Return whether an audit can use this master."""
    return is_local(text) or _ELSEWHERE.fullmatch(text) is not None
