"""Reading and auditing stores that Java DLedger wrote."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from dledger_audit.audit import audit
from dledger_audit.capture import ask_again, capture
from dledger_audit.passes import SparkPasses
from dledger_audit.report import summarize
from dledger_formats.audit import Verdict
from dledger_logs.layout import manifest
from dledger_logs.read import read_log
from dledger_logs.serve import served
from dledger_scan.scanning import flags_of, scan_log
from dledger_store_files.archives import extract
from pyspark_dledger.decode import Entries
from pyspark_dledger.layout import Flag

GOLDEN = Path(__file__).resolve().parent.parent / "formats" / "golden"
STORES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text())
NODES = ("n0", "n1", "n2")


def unpacked(archive: str, folder: Path) -> Path:
    """Unpack the stores of a group; return the folder that holds the nodes' folders."""
    extract(GOLDEN / archive, folder)
    return next(folder.iterdir())


@pytest.mark.parametrize("store", STORES, ids=lambda store: str(store["archive"]))
@pytest.mark.parametrize("node", NODES)
def test_every_entry_that_java_wrote_is_read_unchanged(
    store: dict[str, Any], node: str, tmp_path: Path
) -> None:
    log = read_log(unpacked(store["archive"], tmp_path) / f"dledger-{node}")

    runs = scan_log(log, said=manifest(log, node))

    headers = np.concatenate([run.headers for run in runs if isinstance(run, Entries)])
    found = [
        [int(h["index"]), int(h["pos"]), int(h["term"]), int(h["body_size"]), int(h["magic"])]
        for h in headers
    ]
    assert found == store["entries"]
    assert set(flags_of(runs).values()) == {Flag.NO_CRC}


@pytest.mark.spark
def test_three_java_members_are_sound_but_not_covered_by_checksums(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = unpacked(STORES[0]["archive"], tmp_path)
    with ExitStack() as stack:
        urls = {}
        for node in NODES:
            log = read_log(root / f"dledger-{node}")
            urls[node] = stack.enter_context(served(log.root, manifest(log, node)))
        captured = capture("g", urls)
        summary = summarize(
            captured,
            audit(
                SparkPasses(spark.sparkContext, captured.urls),
                captured,
                lambda: ask_again(captured),
            ),
        )

    assert summary.verdict is Verdict.SOUND
    assert summary.entries == len(STORES[0]["entries"])
    assert {finding.check for finding in summary.first_findings} == {"no_crc"}
    assert {finding.severity for finding in summary.first_findings} == {"info"}
