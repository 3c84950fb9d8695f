"""A compaction that cannot read an entry or its key is refused, and says which entry and why."""

from pathlib import Path

import pytest

from dledger_audit.compaction.archive import Archive
from dledger_compaction.folders import compact_arguments, folders
from dledger_compaction.model import key_history
from dledger_compaction.programs import Run
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import ExitCode
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log
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

    code, _, said = run(*compact_arguments(logs, tmp_path / "a"))

    assert code == ExitCode.REFUSED, said
    assert f"no copy has the entries {first} to {first} intact" in said
    assert "n0: bad_body_crc; n1: bad_body_crc; n2: bad_body_crc" in said
    assert "Traceback" not in said
    assert Archive.load(tmp_path / "a") is None


def test_a_decoder_that_fails_is_named(run: Run, tmp_path: Path) -> None:
    code, _, said = run(*compact_arguments(folders(tmp_path), tmp_path / "a", FAILING))

    assert code == ExitCode.REFUSED, said
    assert f"the decoder {FAILING} failed" in said
    assert "Traceback" not in said


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
