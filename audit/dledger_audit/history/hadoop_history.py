"""The history of a group in a Hadoop file system: copied to a local folder, and copied back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkContext

from dledger_audit import hadoop
from dledger_audit.hadoop import HadoopError, HadoopFolder
from dledger_audit.history.history_file import FILE, History, HistoryError, load, save


@dataclass(frozen=True, slots=True)
class KeptInHadoop:
    """A local copy of the history."""

    folder: Path
    remote: HadoopFolder

    def load(self, group: str) -> History:
        """Read the history of a group. Raises HistoryError, which names the URI."""
        try:
            return load(self.folder, group)
        except HistoryError as error:
            message = str(error).replace(str(self.folder), self.remote.uri)
            raise HistoryError(message) from error

    def keep(self, history: History) -> HistoryError | HadoopError | None:
        """Replace the history; return an error, if any. A crash leaves the old or the new one.

        Nothing is raised, since the verdict counts more than the history.
        """
        try:
            save(history, self.folder)
            self.remote.replace(self.folder / FILE, FILE)
        except (HistoryError, HadoopError) as error:
            return error
        return None


@contextmanager
def hadoop_history(context: SparkContext, uri: str) -> Iterator[KeptInHadoop]:
    """Copy the history, if there is one, to a local folder. Raises HadoopError."""
    remote = HadoopFolder(context, uri)
    with hadoop.scratch() as folder, remote.locked():
        remote.fetch(FILE, folder / FILE)
        yield KeptInHadoop(folder, remote)
