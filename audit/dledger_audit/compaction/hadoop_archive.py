"""Archives in a Hadoop file system: fetched, made and proven in a local folder, and copied back.

The new log is copied completely. Then `archive.json` is replaced, and only then the old log is
removed. So a crash leaves the old archive or the new one.
"""

from pathlib import Path

from dledger_audit.compaction import names
from dledger_audit.compaction.archive import Archive
from dledger_audit.hadoop import HadoopError, HadoopFolder, warn
from dledger_formats.log.archives import FOLDER_NAME, INFO_BYTES_MAX, INFO_FILE, ArchiveInfo
from pyspark_dledger.copies import RefusedError


def fetch(remote: HadoopFolder, target: Path) -> ArchiveInfo | None:
    """Copy an archive to a local folder; return its description, or None if there is none.

    Of logs that nothing describes, only the `checkpoint` is copied (`archive.check_no_log`).
    Raises RefusedError for a folder that holds anything but an archive, and HadoopError.
    """
    there = remote.names()
    foreign = names.foreign(there)
    if foreign is not None:
        raise RefusedError(f"{remote.uri} is no archive: it holds {foreign}; name an empty folder")
    target.mkdir(parents=True, exist_ok=True)
    if not remote.fetch(INFO_FILE, target / INFO_FILE):
        for name in filter(FOLDER_NAME.fullmatch, there):
            (target / name).mkdir()
            remote.fetch(f"{name}/checkpoint", target / name / "checkpoint")
        return None
    try:
        with (target / INFO_FILE).open("rb") as file:
            info = ArchiveInfo.from_json(file.read(INFO_BYTES_MAX + 1))
    except ValueError as error:
        raise RefusedError(
            f"{remote.uri}/{INFO_FILE} cannot be read: {error}; restore it"
        ) from error
    if not remote.fetch(info.folder, target / info.folder):
        raise RefusedError(f"{remote.uri} lacks its folder {info.folder}; restore it from a backup")
    return info


def publish(remote: HadoopFolder, archive: Archive) -> None:
    """Replace the archive by a local one. Raises HadoopError; the old one then stays."""
    remote.put(archive.log, archive.info.folder)
    remote.replace(archive.path / INFO_FILE, INFO_FILE)
    try:
        remove_others(remote, archive.info.folder)
    except HadoopError as error:  # the new archive is valid
        warn(f"the archive was changed, but {error}; the next run tries again")


def remove_others(remote: HadoopFolder, valid: str) -> None:
    """Remove all logs but the valid one, and what a killed run left. Raises HadoopError.

    Files of a run that takes the lock over stay: either they are not among the listed names, or
    `remove` notices that the lock is lost.
    """
    for name in names.others(remote.names(), valid):
        remote.remove(name)
