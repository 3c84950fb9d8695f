"""The Spark session, the same in a pod of 2 GiB, on a laptop, with executors and in the tests."""

import importlib.resources
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from dledger_audit import class_data as files
from dledger_audit.class_data import ClassData
from dledger_audit.interrupts import Interrupts

USER: Final = "dledger"

SETTINGS: Final = {
    "spark.app.name": "dledger-audit",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    # Loopback TCP between the JVM and Python costs 40 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",  # replanning costs more than it saves on so few rows
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # A shuffle moves one row for every 4096 entries.
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

JAVA_OPTIONS: Final = (
    # An audit is short. With C1 alone it takes a quarter less CPU up to about ten million entries,
    # and little more beyond that. The serial collector takes less memory.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    f"-Duser.name={USER}",
)

LOGGING: Final = importlib.resources.files("dledger_audit") / "log4j2.properties"
EXECUTOR_JAVA_OPTIONS: Final = (*JAVA_OPTIONS, f"-Dlog4j2.configurationFile={LOGGING}")
"""For executors that have the same files as this process."""


@contextmanager
def session(
    master: str,
    chosen: Mapping[str, str] | None = None,
    *,
    class_data: ClassData | None = None,
    starting: AbstractContextManager[None] | None = None,
) -> Iterator[SparkContext]:
    """Start Spark without Spark SQL, and stop it at the end of the block.

    A `SparkSession` of this context starts Spark SQL, with the settings of every session. `chosen`
    are more settings. Without `class_data`, the JVM reads the file that the environment names, if
    there is one. `starting` is entered while Spark starts. Call this once in a process: the JVM
    stays until the process ends. Sets PYSPARK_PYTHON in the environment, because Spark takes the
    workers' interpreter from there. That must be this process's interpreter, unless the workers run
    elsewhere.
    """
    if chosen is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    class_data = class_data or files.chosen()
    interrupts = Interrupts()
    with importlib.resources.as_file(LOGGING) as logging, interrupts.handled():
        conf = _conf(master, str(logging), chosen, class_data)
        with starting or nullcontext():
            with interrupts.held():
                gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
            interrupts.shield(gateway)
            if class_data is not None:
                class_data.tell_if_unused(gateway.proc.pid)
            _log_in(gateway.jvm)
            context = SparkContext(conf=conf, gateway=gateway)
        interrupts.install()
        try:
            yield context
        except KeyboardInterrupt:
            _silence(context)
            raise
        finally:
            _stop(context)


def _silence(context: SparkContext) -> None:
    """Let the JVM log nothing more: tasks that are cut short are no errors."""
    with suppress(OSError, Py4JError):
        context.setLogLevel("OFF")


def _stop(context: SparkContext) -> None:
    """Stop Spark. If its JVM has ended already, the run keeps its result or its own error."""
    try:
        context.stop()
    except (OSError, Py4JError) as error:
        sys.stderr.write(f"dledger-audit: Spark did not stop in order: {error}\n")
        context.stop()  # what is left of it in this process


def _conf(
    master: str, logging_file: str, chosen: Mapping[str, str] | None, class_data: ClassData | None
) -> SparkConf:
    """Build the configuration, which ignores the machine's Spark defaults: all audits are alike."""
    java_options = [
        *JAVA_OPTIONS,
        f"-Dlog4j2.configurationFile={logging_file}",
        # Ivy needs a home folder even if it fetches nothing, and a pod's user may have none.
        f"-Duser.home={tempfile.gettempdir()}",
        *(class_data.java_options if class_data is not None else ()),
    ]
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(master)
    conf.setAll(list(SETTINGS.items()))
    conf.set("spark.driver.extraJavaOptions", " ".join(java_options))
    if class_data is not None:
        class_path = files.class_path(Path(_find_spark_home()))
        conf.set("spark.driver.extraClassPath", class_path)
    conf.setAll(list((LOCAL_SETTINGS if chosen is None else chosen).items()))
    return conf


def _log_in(jvm: Any) -> None:
    """Set Hadoop's user, because the system may not know a pod's user id."""
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(USER))
