"""The Spark data source `dledger`: the logs of a DLedger group's members, with one row per entry.

This package reads segments over the members' HTTP, and decodes and checks their bytes with numpy.
Checks that span several segments or members belong to the audit, `dledger_audit`. Only `source`
imports Spark; its docstring tells how to register the data source.
"""
