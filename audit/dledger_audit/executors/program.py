"""The process of an executor in a pod: `dledger-audit executor`, which becomes Spark's executor.

Spark passes everything in the environment. Its own image has a shell script for this; this image
has only the Spark of pyspark.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

EXECUTOR: Final = "executor"
"""The argument that Spark passes to the image of an executor."""
BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_([0-9]+)")
_ARGUMENTS: Final = (
    ("--driver-url", "SPARK_DRIVER_URL"),
    ("--executor-id", "SPARK_EXECUTOR_ID"),
    ("--cores", "SPARK_EXECUTOR_CORES"),
    ("--app-id", "SPARK_APPLICATION_ID"),
    ("--hostname", "SPARK_EXECUTOR_POD_IP"),
    ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
    ("--podName", "SPARK_EXECUTOR_POD_NAME"),
)


def command(environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """Return the command of the executor. Raises KeyError for a variable that Spark did not set."""
    java_home = environment.get("JAVA_HOME")
    options = {
        int(found[1]): value
        for name, value in environment.items()
        if (found := _JAVA_OPTION.fullmatch(name))
    }
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    arguments = [part for flag, name in _ARGUMENTS for part in (flag, environment[name])]
    return [
        f"{java_home}/bin/java" if java_home else "java",
        *(options[number] for number in sorted(options)),
        f"-Xmx{memory}",
        "-cp",
        f"{spark_home}/jars/*",
        BACKEND,
        *arguments,
    ]


def main() -> NoReturn:
    """Become the executor; exit with 2 if Spark did not start this process."""
    import pyspark  # the help of the other commands needs no library

    spark_home = Path(pyspark.__file__).parent
    try:
        words = command(os.environ, spark_home)
    except KeyError as error:
        sys.stderr.write(f"dledger-audit: {error} is not set; only Spark starts executors\n")
        sys.exit(2)
    environment = {**os.environ, "SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
    os.execvpe(words[0], words, environment)  # noqa: S606 - the words are Spark's own
