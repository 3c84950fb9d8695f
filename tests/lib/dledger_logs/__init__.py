"""Logs of members as files, for tests of their readers: written, damaged, served over HTTP.

What belongs here: files in DLedger's layout, written with `dledger_formats` only. What does not:
code of the node or of the audit, so that these files are independent of both.
"""
