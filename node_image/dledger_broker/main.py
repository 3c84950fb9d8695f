"""One member of a group that serves RocketMQ clients."""

import gc
import logging
import os
import sys

import uvloop

from dledger_broker.errors import BrokerError
from dledger_broker.program import BrokerProgram
from dledger_broker.settings import BrokerSettings
from dledger_formats import log_lines
from dledger_formats.console import readable
from dledger_formats.settings import SettingsError
from dledger_node import limited_log, open_files
from dledger_node.errors import NodeError
from dledger_node.freed_memory import keep_freed_memory
from dledger_node.main import CHATTY, EXIT_FATAL, EXIT_SETTINGS, serve
from dledger_node.start_checks import check_start

logger = logging.getLogger(__name__)


def main() -> int:
    """Run one member with the settings of the environment."""
    try:
        settings = BrokerSettings.from_environment(os.environ)
        check_start(settings.node)
    except SettingsError as error:
        print(f"dledger-broker: {readable(str(error))}", file=sys.stderr)  # noqa: T201 - no logging yet
        return EXIT_SETTINGS
    node = settings.node
    log_lines.configure(log_format=node.log_format, level=node.log_level, chatty=CHATTY)
    limited_log.limit_libraries()
    open_files.raise_limit()
    keep_freed_memory()
    gc.freeze()  # a full collection would go through all modules, for 10 ms and more
    try:
        uvloop.run(serve(node, program=BrokerProgram(settings)))
    except (NodeError, BrokerError, OSError) as error:
        logger.critical("%s %s stopped: %s", node.group, node.self_id, error)
        return EXIT_FATAL
    return 0
