"""A Spark session for the tests that need one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dledger_compaction.programs import Run


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test that starts a Spark session, so that `-m spark` selects it."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Start the audit's own session, once per test process."""
    from pyspark.sql import SparkSession

    from dledger_audit.session import session  # decoder tests do not need Spark

    with session("local[2]") as context:
        yield SparkSession(context)


@pytest.fixture
def plain(spark: "SparkSession") -> "SparkSession":
    """Return a session that was told nothing of the data source, as anybody's is."""
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    return session


@pytest.fixture
def run(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> "Run":
    """Run the program in this process, on the session that has started already."""
    from dledger_compaction.programs import running_on

    return running_on(spark.sparkContext, monkeypatch, capsys)
