"""The build backend: hatchling, behind a check of Python's version.

With an older Python and extras, pip first searches for compatible versions of all libraries, for
many minutes and without success, before it reads `requires-python`. But it imports this file at
once, so any Python 3 must be able to parse this file.
"""

import sys

PYTHON_MIN = (3, 11)

if sys.version_info < PYTHON_MIN:
    sys.exit(
        "Python {}.{} or newer is required; this is {}".format(*PYTHON_MIN, sys.version.split()[0])
    )

from hatchling.build import *  # noqa: E402, F403 - what pip calls, which depends on pip
