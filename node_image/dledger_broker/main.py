"""The program `dledger-broker`: one member of a group whose clients are those of RocketMQ."""

import argparse
import gc
import logging
import os
import sys
from importlib.metadata import version

import uvloop

from dledger_broker.errors import BrokerError
from dledger_broker.program import BrokerProgram
from dledger_broker.settings import BrokerSettings
from dledger_formats import log_lines
from dledger_formats.settings import SettingsError
from dledger_node import limited_log
from dledger_node.errors import NodeError
from dledger_node.freed_memory import keep_freed_memory
from dledger_node.main import CHATTY, EXIT_FATAL, EXIT_SETTINGS, serve

logger = logging.getLogger(__name__)

_HELP = """Run one member of a DLedger group as a RocketMQ broker, until SIGTERM.

Settings are environment variables: those of dledger-node (dledger-node --help), and

  DLEDGER_BROKER_ADDRESSES           where clients find each member: n0-IP:port;n1-IP:port
  DLEDGER_BROKER_GROUP_ADDRESS       where clients reach any member, HOST:port (none)
  DLEDGER_BROKER_OWN_ADDRESS         with a group's address, instead of all: where this one listens
  DLEDGER_BROKER_SHARES_PORT         true or false: whether members listen there themselves (false)
  DLEDGER_BROKER_NAME                the broker's name (default: the name of the group)
  DLEDGER_BROKER_CLUSTER             the name of the cluster (default: DefaultCluster)
  DLEDGER_BROKER_AUTO_CREATE_TOPICS  true or false: whether a message creates its topic (true)
  DLEDGER_BROKER_NAME_SERVERS        where members register: HOST:port;HOST:port (none)

Exit codes: 0 stopped by a signal; 1 the member cannot run; 2 a wrong setting."""


def main() -> int:
    """Run one member with the settings of the environment."""
    if sys.argv[1:]:
        parser = argparse.ArgumentParser(
            prog="dledger-broker",
            usage="dledger-broker [--help | --version]",
            description=_HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        shown = f"dledger-broker {version('dledger-operator')}"
        parser.add_argument("--version", action="version", version=shown)
        parser.parse_args()
        return 0
    try:
        settings = BrokerSettings.from_environment(os.environ)
    except SettingsError as error:
        print(f"dledger-broker: {error}", file=sys.stderr)  # noqa: T201 - no logging yet
        return EXIT_SETTINGS
    node = settings.node
    log_lines.configure(log_format=node.log_format, level=node.log_level, chatty=CHATTY)
    limited_log.limit_libraries()
    keep_freed_memory()
    gc.freeze()  # a full collection would go through all modules, for 10 ms and more
    try:
        uvloop.run(serve(node, program=BrokerProgram(settings)))
    except (NodeError, BrokerError, OSError) as error:
        logger.critical("%s %s stopped: %s", node.group, node.self_id, error)
        return EXIT_FATAL
    return 0
