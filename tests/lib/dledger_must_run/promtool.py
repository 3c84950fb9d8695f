"""Where promtool is: on PATH, or in the virtual environment, where `make setup` puts it."""

import shutil
import sys
from pathlib import Path


def find() -> str | None:
    """Return the path of promtool; None if this machine lacks it."""
    return shutil.which("promtool") or shutil.which("promtool", path=Path(sys.executable).parent)
