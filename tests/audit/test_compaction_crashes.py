"""A power cut after a run of compaction leaves the archive."""

from pathlib import Path

import pytest

from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log.archives import INFO_FILE
from dledger_logs.histories import small_shape
from dledger_logs.write import write_log
from dledger_store_faults.tree_crashes import Tree, TreeRecorder


@pytest.mark.parametrize("name", ["a", "new/folders/a"])
def test_the_names_of_a_finished_archive_survive_a_power_cut(tmp_path: Path, name: str) -> None:
    """Retention may have removed by then what only the archive has."""
    log = write_log(tmp_path / "n0", key_history(150, 3), small_shape())
    (top := tmp_path / "volume").mkdir()
    left: list[Tree] = []
    recorder = TreeRecorder(top, lambda _: None)
    with recorder.recording():
        archive = compacted(copies_of({"n0": log}), top / name)
        recorder.on_moment = left.extend
        (top / "next").mkdir()

    assert archive is not None
    assert left
    for tree in left:
        assert f"{name}/{INFO_FILE}" in tree
        assert f"{name}/{archive.info.folder}/checkpoint" in tree
