"""The history of a group in a Hadoop file system: a local copy of it, and the way back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from dledger_audit import hadoop
from dledger_audit.hadoop import HadoopFolder
from dledger_audit.history.memory import FILE


@dataclass(frozen=True, slots=True)
class KeptInHadoop:
    """A local copy of the history."""

    folder: Path
    remote: HadoopFolder

    def publish(self) -> None:
        """Replace the history by the local one; a crash leaves one of them. Raises HadoopError."""
        self.remote.replace(self.folder / FILE, FILE)


@contextmanager
def hadoop_history(spark: SparkSession, uri: str) -> Iterator[KeptInHadoop]:
    """Copy the history, if there is one, to a local folder. Raises HadoopError."""
    remote = HadoopFolder(spark, uri)
    with hadoop.scratch() as folder, remote.locked():
        remote.fetch(FILE, folder / FILE)
        yield KeptInHadoop(folder, remote)
