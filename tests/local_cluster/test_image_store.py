"""The initial storage of new nodes: its cache key, and the files that nodes share."""

from pathlib import Path

import pytest

from tools.local_cluster import cache, image_store
from tools.local_cluster.oci_layout import Image


def image(*layers: str, manifest: str = "m") -> Image:
    return Image(name="localhost/some:dev", descriptor={}, blobs=(manifest, "c", *layers))


def test_the_last_layer_of_an_image_does_not_change_the_key() -> None:
    key = image_store.key([image("base", "project")], "1.6")
    assert image_store.key([image("base", "changed", manifest="n")], "1.6") == key
    assert image_store.key([image("other", "project")], "1.6") != key
    assert image_store.key([image("base", "project")], "1.7") != key


def make_store(folder: Path) -> Path:
    store = folder / "store"
    layer = store / "io.containerd.snapshotter.v1.overlayfs" / "snapshots" / "1" / "fs"
    layer.mkdir(parents=True)
    (layer / "file").write_text("in an image")
    (layer / "link").symlink_to("/nowhere")
    (layer / "own.db").write_text("an image's database")
    metadata = store / "io.containerd.metadata.v1.bolt"
    metadata.mkdir()
    (metadata / "meta.db").write_text("written by the runtime")
    return store


def test_a_clone_shares_image_files_and_has_its_own_databases(tmp_path: Path) -> None:
    store, root = make_store(tmp_path), tmp_path / "node" / "containerd"
    root.parent.mkdir()
    root.with_name("containerd.unfinished").mkdir()  # left by an interruption

    image_store.clone(store, root)

    def shared(name: str) -> bool:
        (mine,) = root.rglob(name)
        (theirs,) = store.rglob(name)
        assert mine.read_bytes() == theirs.read_bytes()
        return mine.samefile(theirs)

    assert shared("file")
    assert shared("own.db")
    assert not shared("meta.db")
    assert [path.name for path in root.parent.iterdir()] == ["containerd"]


def test_the_target_of_a_link_does_not_make_an_entry_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLEDGER_CACHE", str(tmp_path / "cache"))
    target = tmp_path / "elsewhere"
    target.write_text("short")

    def make(folder: Path) -> None:
        (folder / "link").symlink_to(target)

    entry = cache.ensure("things", cache.key("links"), make)
    target.write_text("longer than it was")
    assert cache.is_whole(entry)
