"""Plant faults in an archive: entries that are wrong under right checksums, and wrong bytes."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from dledger_audit.compaction.archive import Archive
from dledger_formats.log import disk, memberships
from dledger_formats.log.archives import INFO_FILE, FileDigest, digest_of
from dledger_logs import damage
from dledger_logs.read import read_log
from dledger_logs.write import Entry, Shape, write_log


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """A sound archive and its source."""

    archive: Archive
    source: Sequence[Entry]
    kept: Sequence[Entry]
    """The archive's entries."""
    shape: Shape


Planter = Callable[[Sound, Path, Random], int | None]
"""Plants a fault in a copy of the archive, and returns the index where; None for no index."""


def signed(path: Path, sound: Sound, **changes: object) -> Archive:
    """Describe the current files in `archive.json`, as a program with a bug would."""
    info = sound.archive.info
    log = path / info.folder
    files = [
        FileDigest(
            name=f"{folder}/{each.name}",
            used_bytes=each.stat().st_size,
            sha256=hashlib.sha256(each.read_bytes()).hexdigest(),
        )
        for folder in (disk.DATA_FOLDER, disk.INDEX_FOLDER)
        for each in sorted((log / folder).iterdir())
    ]
    said = replace(info, files=files, copy_sha256=digest_of(files), **changes)  # type: ignore[arg-type]
    (path / INFO_FILE).write_bytes(said.to_json())
    loaded = Archive.load(path)
    assert loaded is not None
    return loaded


def rewrite(path: Path, sound: Sound, entries: Sequence[Entry], **shape: object) -> None:
    """Replace the archive's log by other entries."""
    log = path / sound.archive.info.folder
    for folder in (disk.DATA_FOLDER, disk.INDEX_FOLDER):
        shutil.rmtree(log / folder)
    write_log(log, entries, replace(sound.shape, **shape))  # type: ignore[arg-type]
    signed(path, sound)


def _pick(sound: Sound, rng: Random, wanted: Callable[[int, Entry, Entry], bool]) -> int:
    """Choose a random index whose source entry and kept entry are as wanted."""
    pairs = enumerate(zip(sound.source, sound.kept, strict=True))
    return rng.choice([index for index, (old, new) in pairs if wanted(index, old, new)])


def _one(
    wanted: Callable[[Sound, int, Entry, Entry], bool], change: Callable[[Entry, Entry], Entry]
) -> Planter:
    """Change one entry of those wanted."""

    def plant(sound: Sound, path: Path, rng: Random) -> int:
        at = _pick(sound, rng, lambda index, old, new: wanted(sound, index, old, new))
        entries = list(sound.kept)
        entries[at] = change(sound.source[at], entries[at])
        rewrite(path, sound, entries)
        return at

    return plant


def _drop(_: Entry, new: Entry) -> Entry:
    return replace(new, body=b"", magic=disk.NOOP, channel=0)


def _before(sound: Sound, index: int) -> bool:
    return index <= sound.archive.info.clean_index


def _is_live(sound: Sound, index: int, old: Entry, new: Entry) -> bool:
    return _before(sound, index) and old == new and b"=" in old.body


def _is_value(sound: Sound, index: int, old: Entry, new: Entry) -> bool:
    return _is_live(sound, index, old, new) and not old.body.endswith(b"=")


def _is_tombstone(entry: Entry) -> bool:
    return entry.body.endswith(b"=") and entry.body.count(b"=") == 1


def _is_last(sound: Sound, index: int, old: Entry) -> bool:
    key = old.body.partition(b"=")[0] + b"="
    later = sound.source[index + 1 : sound.archive.info.clean_index + 1]
    return not any(each.body.startswith(key) for each in later)


def _was_dropped(sound: Sound, index: int, old: Entry, new: Entry) -> bool:
    return _before(sound, index) and old != new


def _without_end(sound: Sound, path: Path, rng: Random) -> int:
    at = rng.randrange(1, len(sound.kept))
    rewrite(path, sound, sound.kept[:at])
    return at


def _longer(sound: Sound, path: Path, _: Random) -> int:
    rewrite(path, sound, [*sound.kept, Entry(term=10**6, body=b"k1=more")])
    return len(sound.kept)


def _swapped(sound: Sound, path: Path, rng: Random) -> int:
    entries = list(sound.kept)
    one, other = sorted(
        rng.sample(
            [i for i in range(len(entries)) if _is_value(sound, i, sound.source[i], entries[i])], 2
        )
    )
    bodies = entries[one].body, entries[other].body
    entries[one] = replace(entries[one], body=bodies[1])
    entries[other] = replace(entries[other], body=bodies[0])
    rewrite(path, sound, entries)
    return one


def _late_clean_point(sound: Sound, path: Path, rng: Random) -> int:
    at = rng.randrange(sound.archive.info.clean_index + 1, len(sound.kept))
    signed(path, sound, clean_index=at)
    return at


def _flipped(*, is_signed: bool) -> Planter:
    def plant(sound: Sound, path: Path, rng: Random) -> int | None:
        at = _pick(sound, rng, lambda _, __, new: len(new.body) > 0)
        damage.flip_body(read_log(path / sound.archive.info.folder), at)
        if is_signed:
            signed(path, sound)
        return at if is_signed else None

    return plant


def _wrong_unit(sound: Sound, path: Path, rng: Random) -> int:
    at = rng.randrange(len(sound.kept))
    damage.flip_unit(read_log(path / sound.archive.info.folder), at)
    signed(path, sound)
    return at


def _shifted(sound: Sound, path: Path, rng: Random) -> int:
    rewrite(path, sound, sound.kept, shift=rng.choice([-48, 48, 4096]))
    return 0


def _without_checksum(sound: Sound, path: Path, rng: Random) -> int:
    at = rng.randrange(len(sound.kept))
    entries = list(sound.kept)
    entries[at] = replace(entries[at], is_covered=False)
    rewrite(path, sound, entries)
    return at


def _foreign_bytes(sound: Sound, path: Path, rng: Random) -> None:
    log = read_log(path / sound.archive.info.folder)
    last = log.places[-1]
    at = rng.randrange(last.offset + last.size + 8, log.segment_bytes)
    damage.overwrite(log.data_path(last.segment), at, b"\1")
    signed(path, sound)


def _lost_file(sound: Sound, path: Path, rng: Random) -> None:
    folder = path / sound.archive.info.folder / rng.choice([disk.DATA_FOLDER, disk.INDEX_FOLDER])
    rng.choice(sorted(folder.iterdir())).unlink()


def _wrong_small_file(sound: Sound, path: Path, rng: Random) -> None:
    info = sound.archive.info
    name = rng.choice(sorted(info.small_files()))
    wrong = replace(info, end_index=info.end_index - 1, end_term=info.end_term - 1)
    (path / info.folder / name).write_bytes(wrong.small_files()[name])


def _wrong_end_term(sound: Sound, path: Path, _: Random) -> int:
    info = sound.archive.info
    wrong = signed(path, sound, end_term=info.end_term - 1).info
    for name, raw in wrong.small_files().items():
        (path / info.folder / name).write_bytes(raw)
    return info.end_index


FAULTS: dict[str, tuple[str, Planter]] = {
    "a last value is dropped": ("lost_last_value", _one(_is_value, _drop)),
    "an older value is back": (
        "older_value_back",
        _one(
            lambda s, i, old, new: _was_dropped(s, i, old, new) and not _is_last(s, i, old),
            lambda old, _: old,
        ),
    ),
    "a young tombstone is dropped": (
        "tombstone_too_early",
        _one(lambda s, i, old, new: _is_live(s, i, old, new) and _is_tombstone(old), _drop),
    ),
    "an old tombstone is kept": (
        "tombstone_too_late",
        _one(
            lambda s, i, old, new: _was_dropped(s, i, old, new) and _is_last(s, i, old),
            lambda old, _: old,
        ),
    ),
    "an entry without a key is dropped": (
        "lost_without_key",
        _one(
            lambda s, i, old, _: (
                _before(s, i) and old.magic == disk.NORMAL and b"=" not in old.body
            ),
            _drop,
        ),
    ),
    "a membership is dropped": (
        "lost_membership",
        _one(
            lambda s, i, old, _: _before(s, i) and old.channel == memberships.MEMBERSHIP_CHANNEL,
            _drop,
        ),
    ),
    "a value is altered": (
        "altered",
        _one(_is_value, lambda _, new: replace(new, body=new.body + b"!")),
    ),
    "a channel is altered": (
        "altered",
        _one(_is_live, lambda _, new: replace(new, channel=new.channel ^ 2)),
    ),
    "a kind is altered": (
        "altered",
        _one(_is_value, lambda _, new: replace(new, magic=disk.NOOP)),
    ),
    "two values are exchanged": ("altered", _swapped),
    "a value is invented": (
        "invented",
        _one(_was_dropped, lambda _, new: replace(new, magic=disk.NORMAL, body=b"k1=invented")),
    ),
    "a no-op has a channel": (
        "bad_noop",
        _one(_was_dropped, lambda _, new: replace(new, channel=5 << 16)),
    ),
    "a term is altered": (
        "term_changed",
        _one(lambda *_: True, lambda _, new: replace(new, term=new.term + 1)),
    ),
    "an entry after the clean point is altered": (
        "changed_behind",
        _one(
            lambda s, i, _, new: not _before(s, i) and bool(new.body),
            lambda _, new: replace(new, body=new.body[:-1] + b"\0" + new.body[-1:]),
        ),
    ),
    "an entry after the clean point is dropped": (
        "changed_behind",
        _one(lambda s, i, _, new: not _before(s, i) and new.magic == disk.NORMAL, _drop),
    ),
    "the end is missing": ("missing", _without_end),
    "the end is invented": ("invented", _longer),
    "the clean point is in the last segment": ("clean_point", _late_clean_point),
    "a byte is flipped": ("digest_differs", _flipped(is_signed=False)),
    "a byte is flipped, and the file signed": ("damaged", _flipped(is_signed=True)),
    "an index unit is wrong": ("wrong_place", _wrong_unit),
    "positions are shifted": ("wrong_place", _shifted),
    "an entry has no checksum": ("damaged", _without_checksum),
    "bytes follow the last entry": ("wrong_place", _foreign_bytes),
    "a file is lost": ("digest_differs", _lost_file),
    "the term or the checkpoint is another": ("digest_differs", _wrong_small_file),
    "the end has another term": ("wrong_end", _wrong_end_term),
}
"""Each fault, the check that must name it, and how it is planted."""
