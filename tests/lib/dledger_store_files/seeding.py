"""Archives, and members whose folders `dledger-node seed` begins with one."""

from dataclasses import replace
from pathlib import Path

from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_formats.log.archives import INFO_FILE, ArchiveInfo
from dledger_formats.settings import GroupState, NodeSettings
from dledger_logs.write import Entry, Shape, write_log
from dledger_node.store_command import seed as seed_command

SHAPE = Shape(segment_bytes=8192, index_segment_bytes=3200)
NOWHERE = "127.0.0.1:1"


def archive_without_voters(folder: Path, seed: int = 1) -> Path:
    """Make an archive whose log names no voters, so that any group may begin with it."""
    history = key_history(400, seed)
    return archive_of(
        folder, [each for each in history if each.magic == disk.NORMAL or not each.body]
    )


def archive_of(folder: Path, entries: list[Entry]) -> Path:
    log = write_log(folder / "source", entries, SHAPE)
    made = compacted(copies_of({"n0": log}), folder / "archive", "kv")
    assert made is not None
    return made.path


def info_of(archive: Path) -> ArchiveInfo:
    return ArchiveInfo.from_json((archive / INFO_FILE).read_bytes())


def member(folder: Path, archive: Path, **changes: object) -> NodeSettings:
    settings = NodeSettings(
        group=info_of(archive).group,
        group_identity="new",
        self_id="n0",
        peers={"n0": NOWHERE, "n1": NOWHERE, "n2": NOWHERE},
        addable_peers={"n3": NOWHERE},
        initial_group_state=GroupState.NEW,
        store_base_dir=str(folder / "store"),
        segment_size_bytes=SHAPE.segment_bytes,
        index_segment_size_bytes=SHAPE.index_segment_bytes,
        http_port=1,
    )
    return replace(settings, **changes)


def run(settings: NodeSettings, archive: Path, *options: str) -> int:
    return seed_command.main([str(archive), *options], settings.to_environment())
