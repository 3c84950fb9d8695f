"""Files that were cut short on one member do not keep the group from being compacted."""

from pathlib import Path

import pytest

from dledger_audit.compaction.copies import ask
from dledger_compaction.folders import COUNT, folders
from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log
from dledger_logs.write import write_log
from pyspark_dledger.copies import Copy, RefusedError


def asked(logs: dict[str, Log]) -> list[Copy]:
    """Read the manifests of folders, which have the lengths of the files as they are."""
    return ask("g", {member: str(log.root) for member, log in logs.items()})


def cut(paths: list[Path], size: int) -> None:
    for path in paths:
        with path.open("r+b") as file:
            file.truncate(size)


@pytest.mark.parametrize("size", [0, 300, 320])
@pytest.mark.parametrize("files", ["one data file", "one index file", "all index files"])
def test_the_lengths_are_those_that_most_files_have(files: str, size: int, tmp_path: Path) -> None:
    logs = folders(tmp_path)
    expected = compacted(copies_of(logs), tmp_path / "expected")
    name = disk.DATA_FOLDER if files == "one data file" else disk.INDEX_FOLDER
    paths = sorted((logs["n1"].root / name).iterdir())
    cut(paths if files == "all index files" else paths[1:2], size)

    archive = compacted(asked(logs), tmp_path / "a")

    assert expected is not None
    assert archive is not None
    assert archive.info.files == expected.info.files


@pytest.mark.parametrize("other_bytes", [2048, 8192])
def test_members_with_two_whole_lengths_are_refused(other_bytes: int, tmp_path: Path) -> None:
    history = key_history(COUNT, 3)
    logs = {member: write_log(tmp_path / member, history, small_shape()) for member in ("n0", "n1")}
    logs["n2"] = write_log(tmp_path / "n2", history, small_shape(other_bytes))

    with pytest.raises(RefusedError, match=rf"the lengths \[.*{other_bytes}.*\]; a group"):
        compacted(copies_of(logs), tmp_path / "a")
