"""A compaction that cannot read an entry or its key is refused, and says which entry and why."""

from dataclasses import replace
from pathlib import Path

import pytest

from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.copies import ask
from dledger_compaction.folders import compact_arguments, folders
from dledger_compaction.model import key_history
from dledger_compaction.programs import Run
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import ExitCode
from dledger_formats.log import disk, properties
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.write import write_log
from pyspark_dledger.copies import RefusedError

FAILING = "binascii:unhexlify"
"""A decoder that fails on the first body that is no hexadecimal number."""


def damaged_everywhere(logs: dict[str, Log]) -> list[int]:
    """Flip a body in two segments of all members; return their indexes."""
    first = next(iter(logs.values()))
    with_body = [place.index for place in first.places if place.size > 60]
    indexes = [with_body[10], with_body[40]]
    for log in logs.values():
        for index in indexes:
            damage.flip_body(log, index)
    return indexes


def test_the_first_entry_that_no_member_has_intact_is_named(run: Run, tmp_path: Path) -> None:
    logs = folders(tmp_path)
    first, _ = damaged_everywhere(logs)

    code, _, stderr = run(*compact_arguments(logs, tmp_path / "a"))

    assert code == ExitCode.REFUSED, stderr
    assert f"no copy has the entries {first} to {first} intact" in stderr
    assert "n0: bad_body_crc; n1: bad_body_crc; n2: bad_body_crc" in stderr
    assert "Traceback" not in stderr
    assert Archive.load(tmp_path / "a") is None


def test_a_decoder_that_fails_is_named(run: Run, tmp_path: Path) -> None:
    code, _, stderr = run(*compact_arguments(folders(tmp_path), tmp_path / "a", FAILING))

    assert code == ExitCode.REFUSED, stderr
    assert f"the decoder {FAILING} failed" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("entries_max", [None, 1])
def test_every_division_names_the_same_first_entry(entries_max: int | None, tmp_path: Path) -> None:
    logs = {"n0": write_log(tmp_path / "n0", key_history(400, 3), small_shape())}
    first, _ = damaged_everywhere(logs)

    with pytest.raises(RefusedError, match=f"entries {first} to {first} intact"):
        compacted(copies_of(logs), tmp_path / "a", entries_max=entries_max)


def test_a_decoder_that_fails_without_spark_is_named_too(tmp_path: Path) -> None:
    logs = {"n0": write_log(tmp_path / "n0", key_history(400, 3), small_shape())}

    with pytest.raises(RefusedError, match=f"the decoder {FAILING} failed"):
        compacted(copies_of(logs), tmp_path / "a", FAILING)


def without_first_entry(log: Log, fault: str) -> None:
    """Damage the first entry of a log, so that its first file does not show where it begins."""
    if fault == "cut short":
        with log.data_path(log.segments[0]).open("r+b") as file:
            file.truncate(0)
    else:
        damage.flip_header(log, log.first_index, "magic", 3)


@pytest.mark.parametrize("fault", ["cut short", "damaged"])
@pytest.mark.parametrize("removed", [0, 1])
def test_a_front_that_only_a_damaged_folder_has_is_not_left_out(
    removed: int, fault: str, tmp_path: Path
) -> None:
    """The other voters have removed more of their fronts."""
    logs = folders(tmp_path)
    for number, (member, log) in enumerate(logs.items()):
        logs[member] = damage.remove_front(log, removed + (number > 0))
        said = {"committedIndex": 499, "endIndex": 499, "beginIndex": logs[member].first_index}
        (log.root / "checkpoint").write_bytes(properties.encode(said))
    first = logs["n0"].first_index
    without_first_entry(logs["n0"], fault)

    with pytest.raises(RefusedError, match=f"no copy has the entries {first} to"):
        compacted(ask("g", {member: str(log.root) for member, log in logs.items()}), tmp_path / "a")


def test_a_front_that_only_a_damaged_member_has_is_not_left_out(tmp_path: Path) -> None:
    """Its index does not show which entry its first file begins with."""
    log = write_log(tmp_path / "n0", key_history(400, 3), small_shape())
    without_first_entry(log, "damaged")
    served = manifest(log, "n0")
    served = replace(served, data=[replace(served.data[0], first_index=-1), *served.data[1:]])

    with pytest.raises(RefusedError, match="no copy has the entries 0 to"):
        compacted(copies_of({"n0": log}, {"n0": served}), tmp_path / "a")


def test_a_folder_that_does_not_show_where_its_log_begins_is_refused(tmp_path: Path) -> None:
    """Java's checkpoint does not say it."""
    logs = folders(tmp_path)
    log = logs["n0"] = damage.remove_front(logs["n0"], 1)
    without_first_entry(log, "damaged")

    with pytest.raises(RefusedError, match=f"the first entry of .*{disk.DATA_FOLDER}/0*[1-9]"):
        ask("g", {"n0": str(log.root)})
