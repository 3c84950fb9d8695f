"""Class data of Spark's JVM: made by one run of Spark, read by the next, left out if unfit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_audit.class_data import VARIABLE, ClassData, chosen, class_path

pytestmark = pytest.mark.spark

RUN = """
from pathlib import Path
from dledger_audit.session import session

with session("local[1]") as context:
    total = context.parallelize(range(100), 2).sum()
    maps = Path(f"/proc/{context._gateway.proc.pid}/maps").read_text()
    print(total, "spark.jsa" in maps)
"""


def run(file: Path) -> subprocess.CompletedProcess[str]:
    """Run Spark with the class data in a file."""
    return subprocess.run(
        [sys.executable, "-c", RUN],
        env={**os.environ, VARIABLE: str(file)},
        capture_output=True, text=True, check=True, timeout=200,
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The class data of this machine's Java."""
    file = tmp_path_factory.mktemp("class-data") / "spark.jsa"
    subprocess.run(
        [sys.executable, "-m", "dledger_audit.make_class_data", str(file)], check=True, timeout=400
    )
    return file


def test_spark_takes_its_classes_from_the_file(made: Path) -> None:
    ended = run(made)

    assert ended.stdout.splitlines() == ["4950 True"], "and nothing else on the report's output"
    assert "dledger-audit:" not in ended.stderr


@pytest.mark.parametrize("kind", ["missing", "of another Java"])
def test_spark_starts_without_a_file_that_does_not_fit_and_says_so(
    made: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "spark.jsa"
    if kind != "missing":
        content = bytearray(made.read_bytes())
        at = content.index(b"OpenJDK")  # the header names the build of Java
        content[at : at + 7] = b"AnyJava"
        file.write_bytes(content)

    ended = run(file)

    assert ended.stdout.splitlines() == ["4950 False"]
    assert f"dledger-audit: {file} does not fit this Java and these jars" in ended.stderr


def test_jars_are_named_in_an_order_that_no_file_system_changes(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for name in ("b.jar", "c.jar", "a.jar", "readme.txt"):
        (tmp_path / "jars" / name).touch()

    named = class_path(tmp_path).split(":")

    assert named == [str(tmp_path / "jars" / name) for name in ("a.jar", "b.jar", "c.jar")]


def test_the_environment_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen() is None
    monkeypatch.setenv(VARIABLE, "/class-data/spark.jsa")
    assert chosen() == ClassData(Path("/class-data/spark.jsa"))
