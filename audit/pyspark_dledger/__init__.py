"""The Spark data source `dledger`: the logs of a DLedger group's members, with one row per entry.

This package reads segments over the members' HTTP, and decodes and checks their bytes with numpy.
Checks that span several segments or members belong to the audit, `dledger_audit`. Only `source`
imports Spark. Spark finds the data source by itself; see `discovery`.
"""

from pyspark_dledger.discovery import __getattr__

__all__ = ["DefaultSource", "__getattr__"]
