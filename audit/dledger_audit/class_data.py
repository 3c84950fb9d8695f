"""A file with the classes of Spark's JVM, from which Java loads them ready to use.

Java reads, checks and links thousands of classes at each start of Spark, unless it has such a file
(https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html). A file fits one build of
Java and the same jars in the same order, with the same sizes and times. Java checks that itself,
and starts as usual if the file does not fit.

Of the project, this module, `session` and `make_class_data` import only each other and
`interrupts`: an image's file is made before the rest of the project is copied to it.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "DLEDGER_AUDIT_CLASS_DATA"
"""The environment variable that names the file; the audit's image sets it."""


@dataclass(frozen=True, slots=True)
class ClassData:
    """The class data file of a JVM, which reads it, or writes it when it ends."""

    file: Path
    is_written: bool = False

    @property
    def java_options(self) -> list[str]:
        """The options of the JVM. Warnings go to stderr, because stdout carries the report."""
        if self.is_written:
            return [
                f"-XX:ArchiveClassesAtExit={self.file}",
                "-Xlog:disable",
                "-Xlog:all=error:stderr",
            ]
        return [
            f"-XX:SharedArchiveFile={self.file}",
            "-Xshare:auto",
            "-Xlog:disable",
            "-Xlog:all=warning:stderr",
        ]

    def tell_if_unused(self, process: int) -> None:
        """Warn on standard error if a JVM does not load its classes from the file."""
        try:
            maps = Path(f"/proc/{process}/maps").read_text()
        except OSError:
            return
        if not self.is_written and str(self.file) not in maps:
            sys.stderr.write(
                f"dledger-audit: {self.file} does not fit this Java and these jars, or is missing: "
                "Spark starts without it, which takes some seconds longer\n"
            )


def chosen() -> ClassData | None:
    """Return the file that the environment names, or None."""
    named = os.environ.get(VARIABLE)
    return ClassData(Path(named).absolute()) if named else None


def class_path(spark_home: Path) -> str:
    """Return a class path of Spark's jars, sorted by name.

    Spark itself gives Java a wildcard, which Java expands in the order of the folder; that order
    differs between file systems.
    """
    return ":".join(str(jar) for jar in sorted((spark_home / "jars").glob("*.jar")))
