"""Images: the OCI layout, the pause image, and the pip settings of a build."""

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.local_cluster import images, oci_layout, pip_settings
from tools.local_cluster.errors import LocalClusterError

NAME = "localhost/some:dev"


def put(layout: Path, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    path = layout / "blobs" / "sha256" / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def put_image(layout: Path, name: str, layers: list[bytes]) -> dict[str, Any]:
    manifest = {
        "config": put(layout, b"config of " + b"".join(layers)),
        "layers": [put(layout, layer) for layer in layers],
    }
    descriptor = put(layout, json.dumps(manifest).encode())
    return {**descriptor, "annotations": {"org.opencontainers.image.ref.name": name}}


def put_index(layout: Path, descriptors: list[dict[str, Any]]) -> None:
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": descriptors}))


def names_in_tar(content: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return set(archive.getnames())


def test_class_data_are_made_from_the_sources_by_which_an_image_is_told_from_older_ones() -> None:
    stage = (images.ROOT / "Dockerfile").read_text().partition("AS audit-class-data\n")[2]
    copied = re.findall(r"audit/dledger_audit/\S+\.\S+", stage.partition("\nRUN ")[0])
    modules = {Path(source).stem for source in copied if source.endswith(".py")}
    imported = {
        name
        for source in copied
        if source.endswith(".py")
        for name in re.findall(
            r"^\s*(?:from|import) (?:dledger|pyspark_dledger)\S*(?: import \w+)?",
            (images.ROOT / source).read_text(),
            re.MULTILINE,
        )
    }

    assert sorted(copied) == sorted(images.CLASS_DATA_SOURCES)
    assert imported, "session imports class_data"
    assert all(
        re.search(rf"\b(?:{'|'.join(modules - {'__init__'})})\b", name) for name in imported
    ), f"the stage lacks a module: {imported}"


def test_an_image_is_found_by_its_name_and_written_completely(tmp_path: Path) -> None:
    put_index(tmp_path, [put_image(tmp_path, NAME, [b"a", b"b"])])
    image = oci_layout.find(tmp_path, NAME)
    assert len(image.blobs) == 4
    file = io.BytesIO()
    oci_layout.write_tar(tmp_path, image, file)
    wanted = {f"blobs/{digest.replace(':', '/')}" for digest in image.blobs}
    assert names_in_tar(file.getvalue()) == wanted | {"oci-layout", "index.json"}


def test_a_tar_omits_blobs_that_its_reader_has(tmp_path: Path) -> None:
    put_index(tmp_path, [put_image(tmp_path, NAME, [b"a", b"b"])])
    image = oci_layout.find(tmp_path, NAME)
    file = io.BytesIO()
    oci_layout.write_tar(tmp_path, image, file, without={image.blobs[2]})
    left_out = f"blobs/{image.blobs[2].replace(':', '/')}"
    assert left_out not in names_in_tar(file.getvalue())
    assert len(names_in_tar(file.getvalue())) == 5


def test_a_missing_image_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="not been built"):
        oci_layout.find(tmp_path, NAME)


def test_the_blobs_of_a_replaced_image_are_removed(tmp_path: Path) -> None:
    old = put_image(tmp_path, NAME, [b"shared", b"old"])
    del old["annotations"]
    put_index(tmp_path, [old, put_image(tmp_path, NAME, [b"shared", b"new"])])
    oci_layout.remove_replaced(tmp_path)
    contents = {path.read_bytes() for path in (tmp_path / "blobs").glob("*/*")}
    assert {b"shared", b"new"} < contents
    assert b"old" not in contents
    assert [image.name for image in oci_layout.images(tmp_path)] == [NAME]
    assert oci_layout.is_whole(tmp_path, oci_layout.find(tmp_path, NAME))


def test_the_environment_overrides_pip_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("[global]\ntimeout = 1\nretries = 5\n[install]\nno-compile = yes\n")
    second.write_text("[global]\ntimeout = 2\n")
    options = pip_settings.merge({"PIP_FIND_LINKS": "/w", "PIP_USER": "1"}, [first, second])
    assert options == {"timeout": "2", "retries": "5", "no-compile": "yes", "find-links": "/w"}


def test_paths_that_pip_options_name_are_found(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    options = {"find-links": f"{wheels}\nfile://{tmp_path}", "cert": "/no/such", "timeout": "3"}
    assert pip_settings.named_paths(options) == [tmp_path, wheels]


def test_written_pip_options_are_read_back_unchanged(tmp_path: Path) -> None:
    options = {"find-links": "/a\n/b", "timeout": "3"}
    file = tmp_path / "pip.conf"
    file.write_text(pip_settings.text(options))
    again = pip_settings.merge({}, [file])
    assert {name: value.split() for name, value in again.items()} == {
        "find-links": ["/a", "/b"],
        "timeout": ["3"],
    }
