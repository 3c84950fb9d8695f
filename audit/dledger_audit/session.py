"""The Spark session: the same for a pod of 2 GiB, a laptop and the tests."""

import importlib.resources
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pyspark_dledger.source import DLedgerSource

USER: Final = "dledger"

SETTINGS: Final = {
    "spark.app.name": "dledger-audit",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    # Loopback TCP between the JVM and Python costs 40 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",  # planning anew costs more than so few rows do
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # What is shuffled is a row for every 4096 entries.
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

JAVA_OPTIONS: Final = (
    # An audit is short. With C1 alone it takes a quarter less CPU up to some ten million entries,
    # and little more beyond; the serial collector takes less memory.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    f"-Duser.name={USER}",
)

_LOGGING: Final = importlib.resources.files("dledger_audit") / "log4j2.properties"


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """Start Spark, know the source `dledger`, and stop Spark at the end of the block.

    Once in a process: its JVM stays until the process ends. Changes PYSPARK_PYTHON of this process:
    workers must run this very interpreter, and Spark takes its name from there alone.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with importlib.resources.as_file(_LOGGING) as logging:
        conf = _conf(master, str(logging))
        gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
        _log_in(gateway.jvm)
        with SparkContext(conf=conf, gateway=gateway) as context:
            spark = SparkSession(context)
            spark.dataSource.register(DLedgerSource)
            yield spark


def _conf(master: str, logging_file: str) -> SparkConf:
    """Put the settings together; the machine's own are left out, so that all audits are alike."""
    java_options = [
        *JAVA_OPTIONS,
        f"-Dlog4j2.configurationFile={logging_file}",
        # Ivy wants a home even when it has nothing to fetch, and a pod's user may have none.
        f"-Duser.home={tempfile.gettempdir()}",
    ]
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(master)
    conf.setAll(list(SETTINGS.items()))
    conf.set("spark.driver.extraJavaOptions", " ".join(java_options))
    if master.startswith("local"):
        conf.setAll(list(LOCAL_SETTINGS.items()))
    return conf


def _log_in(jvm: Any) -> None:
    """Tell Hadoop who we are before it asks the system, which need not know a pod's user id."""
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(USER))
