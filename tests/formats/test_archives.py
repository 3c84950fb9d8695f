"""`archive.json`: names that lead out of the archive are refused."""

import json

import pytest

from dledger_formats.json_objects import FormatError
from dledger_formats.log.archives import FORMAT, ArchiveInfo, FileDigest

FOLDER = "log-00000000000000000007-0123456789abcdef"
FILE = "data/00000000000000000000"


def info(folder: str, name: str, used_bytes: int = 1) -> ArchiveInfo:
    return ArchiveInfo(
        format=FORMAT, group="g", group_identity="", decoder="kv", tombstone_entries=0,
        first_index=0, clean_index=5, end_index=7, end_term=2, voters=[], learners=[],
        segment_bytes=1024, index_segment_bytes=320, dead_entries=0, dead_bytes=0,
        source_first_index=0, source_sha256="", previous_sha256="", copy_sha256="",
        files=[FileDigest(name=name, used_bytes=used_bytes, sha256="")], folder=folder,
    )  # fmt: skip


@pytest.mark.parametrize("folder", [FOLDER, FOLDER + "-again"])
def test_the_names_of_an_archive_are_read(folder: str) -> None:
    assert ArchiveInfo.from_json(info(folder, FILE).to_json()) == info(folder, FILE)


@pytest.mark.parametrize(
    ("folder", "name", "used_bytes"),
    [
        ("", FILE, 1),
        (".", FILE, 1),
        ("..", FILE, 1),
        ("/etc", FILE, 1),
        ("log-new", FILE, 1),
        (f"../{FOLDER}", FILE, 1),
        (f"{FOLDER}/..", FILE, 1),
        (f"{FOLDER}\n", FILE, 1),
        (FOLDER, "/etc/passwd", 1),
        (FOLDER, "data/../../../secret", 1),
        (FOLDER, "currterm", 1),
        (FOLDER, f"other/{FILE}", 1),
        (FOLDER, FILE, -1),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(folder: str, name: str, used_bytes: int) -> None:
    with pytest.raises(FormatError, match="is not "):
        ArchiveInfo.from_json(info(folder, name, used_bytes).to_json())


def test_the_small_files_follow_from_the_facts() -> None:
    raw = info(FOLDER, FILE).to_json()
    small = ArchiveInfo.from_json(json.dumps(json.loads(raw)).encode()).small_files()

    assert small["currterm"].startswith(b"voteLeader=\ncurrTerm=2\n")
    assert small["checkpoint"].startswith(b"committedIndex=7\nendIndex=7\nbeginIndex=0\n")
