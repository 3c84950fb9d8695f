"""RocketMQ's own name server as a process on this machine."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools import java_rocketmq
from tools.groups.java_process import start_java

MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"


@contextlib.contextmanager
def running_name_server(folder: Path, version: str, port: int) -> Iterator[str]:
    """Run a name server; yield its address. The server answers after some seconds.

    Raises JavaMissingError.
    """
    class_path = java_rocketmq.find_name_server(version)
    folder.mkdir(exist_ok=True)
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "logback_namesrv.xml").write_text("<configuration/>")  # 4.9 ends without it
    settings = folder / "name-server.conf"
    settings.write_text(f"listenPort={port}\n")
    with (folder / "name-server.log").open("ab") as log:
        process = start_java(
            class_path, MAIN, ["-c", str(settings)], home=folder, log=log,
            options=("-Xmx256m", "-XX:+UseSerialGC", f"-Drocketmq.home.dir={folder}"),
        )  # fmt: skip
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
