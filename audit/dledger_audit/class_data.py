"""The classes of Spark's JVM in a file, from which Java takes them as they are.

Java reads, checks and links thousands of classes at each start of Spark, unless it has such a file
(https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html). A file fits one build of
Java and the same jars in the same order, with the same sizes and times. Java compares that itself,
and starts as usual if the file does not fit.

This module, `session` and `make_class_data` import no other one of the project: an image's file is
made before the project is copied to it.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "DLEDGER_AUDIT_CLASS_DATA"
"""The variable with the file; the image of the audit sets it."""


@dataclass(frozen=True, slots=True)
class ClassData:
    """The file of a JVM, which reads it, or writes it at its end."""

    file: Path
    is_written: bool = False

    @property
    def java_options(self) -> list[str]:
        """The options of the JVM. Its standard output is the report's, so warnings go elsewhere."""
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
        """Write to the standard error if a JVM does not take its classes from the file."""
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
    """Return the file that the environment names, if it does."""
    named = os.environ.get(VARIABLE)
    return ClassData(Path(named).absolute()) if named else None


def class_path(spark_home: Path) -> str:
    """Return Spark's jars by name. Spark gives Java a wildcard instead, which stands for the jars
    in the order of the folder, and that differs between file systems.
    """
    return ":".join(str(jar) for jar in sorted((spark_home / "jars").glob("*.jar")))
