"""Find the entries in a store that another program wrote."""

from pathlib import Path

from dledger_formats.log import disk
from dledger_logs.layout import Log, Place


def read_log(root: Path) -> Log:
    """Walk the data files of an undamaged store, up to the first byte that is not a record."""
    paths = sorted((root / disk.DATA_FOLDER).iterdir())
    index_path = next((root / disk.INDEX_FOLDER).iterdir())
    places = [place for path in paths for place in _places(path)]
    return Log(
        root=root,
        places=tuple(places),
        segment_bytes=paths[0].stat().st_size,
        index_segment_bytes=index_path.stat().st_size,
    )


def _places(path: Path) -> list[Place]:
    raw, at, places = path.read_bytes(), 0, []
    start = disk.start_offset(path.name)
    while at + disk.ENTRY_HEADER_SIZE <= len(raw):
        if disk.unpack_header(raw, at).magic not in disk.ENTRY_MAGICS:
            break  # a blank, or unwritten bytes
        header = disk.check_entry(raw, at, len(raw))
        places.append(
            Place(
                index=header.index, pos=start + at, size=header.size, segment=path.name, offset=at
            )
        )
        at += header.size
    return places
