"""What a test does on a machine that lacks what the test needs, and that could have it."""

import os
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, or fail it in a run that must not leave it out; `reason` says what to do.

    For what every machine can have, such as the history of the repository. A machine that lacks
    root or loop devices cannot help it.
    """
    if os.environ.get("MUST_RUN"):
        pytest.fail(f"MUST_RUN is set, and {reason}", pytrace=False)
    pytest.skip(reason)
