"""How Spark finds the data source: it looks for `DefaultSource` in every package `pyspark_*`.

Spark does so in each session that uses any Python data source. So the lookup imports nothing but
PySpark: a missing library must not break the other data sources. And a program that only decodes
segments does not import PySpark at all.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return the package's attribute `DefaultSource`. Raises AttributeError for any other name."""
    if name == "DefaultSource":
        from pyspark_dledger.source import DLedgerSource

        return DLedgerSource
    raise AttributeError(f"module 'pyspark_dledger' has no attribute {name!r}")
