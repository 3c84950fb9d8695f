"""Folders of Hadoop file systems, such as hdfs://HOST/FOLDER, through Spark's JVM.

Archives and histories are made in a local folder and copied. The file that makes them valid is
copied last, under another name, and renamed.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from dledger_audit import folder_lock
from dledger_audit.places import HADOOP_LOCK_FILE, HADOOP_UNFINISHED
from dledger_audit.renewed_lock import LockHeldError, RenewedLock

BLOCK_BYTES: Final = 4 << 20
_LENGTH_MAX: Final = 300


class HadoopError(Exception):
    """A file system refused an operation, or cannot be reached; the message says which."""


class HadoopFolder:
    """One folder. All methods raise HadoopError."""

    def __init__(self, context: SparkContext, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._lock: RenewedLock | None = None
        self._gateway, self._jvm = cast("Any", context._gateway), cast("Any", context._jvm)
        configuration = context._jsc.hadoopConfiguration()
        with self._raised_as_hadoop_error("cannot be opened"):
            root = self._jvm.org.apache.hadoop.fs.Path(self.uri)
            self._files: Any = root.getFileSystem(configuration)
            # A local file system would write a second file for each one.
            self._files.setWriteChecksum(False)
            is_local = str(self._files.getUri().getScheme()) == "file"
            self._local_folder = Path(str(root.toUri().getPath())) if is_local else None
            self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                root.toUri(), configuration
            )

    def names(self) -> list[str]:
        """Return the names in the folder; none if there is no folder."""
        with self._raised_as_hadoop_error("cannot be listed"):
            if not self._files.exists(self._path()):
                return []
            return sorted(each.getPath().getName() for each in self._files.listStatus(self._path()))

    def fetch(self, name: str, target: Path) -> bool:
        """Copy a file or a folder to `target`; return False if it does not exist."""
        with self._raised_as_hadoop_error(f"does not give {name}"):
            if not self._files.exists(self._path(name)):
                return False
            self._files.copyToLocalFile(False, self._path(name), self._local(target), True)
        return True

    def put(self, source: Path, name: str) -> None:
        """Copy a local file, or a folder and its content, in place of whatever has the name.

        A run that has lost the folder's lock meanwhile stops before the next file.
        """
        self.remove(name)
        files = [source] if source.is_file() else sorted(source.rglob("*"))
        for file in files:
            if file.is_file():
                parts = file.relative_to(source).parts
                self._put_file(file, "/".join((name, *parts)))

    def replace(self, source: Path, name: str) -> None:
        """Replace a file by a local one, atomically, and only while this run holds the folder."""
        self.put(source, name + HADOOP_UNFINISHED)
        self._check_lock()
        with self._raised_as_hadoop_error(f"does not rename {name}"):
            rename = self._jvm.org.apache.hadoop.fs.Options.Rename
            options = self._gateway.new_array(rename, 1)
            options[0] = rename.OVERWRITE
            self._context.rename(self._path(name + HADOOP_UNFINISHED), self._path(name), options)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and its content, if it exists.

        The lock is checked first: if it was lost, the file may be another run's.
        """
        self._check_lock()
        with self._raised_as_hadoop_error(f"does not remove {name}"):
            is_removed = self._files.delete(self._path(name), True)
            if not is_removed and self._files.exists(self._path(name)):
                raise HadoopError(f"{self.uri} does not remove {name}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other runs. The lock of a killed run expires."""
        lock = RenewedLock(self, HADOOP_LOCK_FILE)
        with self._raised_as_hadoop_error("cannot be written"):
            self._files.mkdirs(self._path())
        with self._held_by_others():
            lock.acquire()
        try:
            self._check_local_lock()
            self._lock = lock
            with lock.renewed():
                yield
        finally:
            self._lock = None
            self._unlock(lock)

    def _check_lock(self) -> None:
        """Raise HadoopError if this run held the folder and has lost its lock.

        The lock removes its own files only before the run holds the folder, and afterwards.
        """
        if self._lock is not None:
            with self._held_by_others():
                self._lock.check()

    @contextmanager
    def _held_by_others(self) -> Iterator[None]:
        try:
            yield
        except LockHeldError as error:
            raise HadoopError(
                f"{self.uri} is in use by another run; wait until it has ended"
            ) from error

    # The files of the lock, see `renewed_lock.LockFiles`

    def create(self, name: str) -> bool:
        """Create an empty file; return False if it exists."""
        with self._raised_as_hadoop_error("cannot be written"):
            return bool(self._files.createNewFile(self._path(name)))

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""
        with self._raised_as_hadoop_error(f"does not give {name}"):
            if not self._files.exists(self._path(name)):
                return None
            stream = self._files.open(self._path(name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Replace the content of a small file."""
        with self._raised_as_hadoop_error(f"does not take {name}"):
            stream = self._files.create(self._path(name), True)
            try:
                stream.write(content)
            finally:
                stream.close()

    def move(self, name: str, to: str) -> bool:
        """Rename a file; return False if it does not exist, or the other name is taken."""
        with self._raised_as_hadoop_error(f"does not rename {name}"):
            return bool(self._files.rename(self._path(name), self._path(to)))

    def _check_local_lock(self) -> None:
        """Raise HadoopError if a run that was given a path, not a URI, holds this local folder."""
        if self._local_folder is None:
            return
        with self._raised_as_hadoop_error("cannot be locked"):
            is_locked = folder_lock.is_locked(self._local_folder)
        if is_locked:
            raise HadoopError(f"{self.uri} is in use by another run; wait until it has ended")

    def _unlock(self, lock: RenewedLock) -> None:
        """Remove the lock. If this fails, the result or the error of the run still counts."""
        try:
            lock.release()
        except HadoopError as error:
            warn(f"{error}; the next run waits for a minute until it takes the lock over")

    def _put_file(self, source: Path, name: str) -> None:
        """Copy a file to a name that is free."""
        self._check_lock()
        with self._raised_as_hadoop_error(f"does not take {name}"):
            read = self._jvm.java.io.FileInputStream(str(source))
            try:
                written = self._files.create(self._path(name), False)
                self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(read, written, BLOCK_BYTES, False)
                if written.hasCapability("hsync"):
                    written.hsync()
                written.close()
            finally:
                read.close()

    def _path(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}" if name else self.uri)

    def _local(self, path: Path) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path.absolute().as_uri())

    @contextmanager
    def _raised_as_hadoop_error(self, what: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            reason = str(error.java_exception.toString())[:_LENGTH_MAX]
            raise HadoopError(f"{self.uri} {what}: {reason}") from error
        except (Py4JError, OSError) as error:
            raise HadoopError(f"{self.uri} {what}: {str(error)[:_LENGTH_MAX]}") from error


def warn(text: str) -> None:
    """Warn on standard error of a failure after the work was done."""
    sys.stderr.write(f"dledger-audit: {text}\n")


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary local folder for copies from and to a Hadoop file system."""
    with tempfile.TemporaryDirectory(prefix="dledger-audit-") as folder:
        yield Path(folder)
