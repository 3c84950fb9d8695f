"""Folders of stopped members, from which `dledger-audit` can compact."""

from pathlib import Path

from dledger_compaction.model import key_history
from dledger_formats.log import properties
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log
from dledger_logs.write import write_log

COUNT = 500


def folders(tmp_path: Path) -> dict[str, Log]:
    """Write the folders of three stopped members."""
    logs = {}
    for member in ("n0", "n1", "n2"):
        log = write_log(tmp_path / f"dledger-{member}", key_history(COUNT, 3), small_shape())
        said = {"committedIndex": COUNT - 1, "endIndex": COUNT - 1}
        (log.root / "checkpoint").write_bytes(properties.encode(said))
        (log.root / "group").write_bytes(properties.encode({"group": "g"}))
        logs[member] = log
    return logs


def places(logs: dict[str, Log]) -> list[str]:
    """Return the members and their folders, as the command line has them."""
    return [f"{member}={log.root}" for member, log in logs.items()]


def compact_arguments(logs: dict[str, Log], archive: Path, decoder: str = "kv") -> list[str]:
    """Return the command line that compacts these folders."""
    members = [word for place in places(logs) for word in ("--member", place)]
    return ["compact", "--group", "g", *members, "--decoder", decoder, "--archive", str(archive)]
