"""Logs of members as files, for tests of who reads them: written, damaged and served over HTTP.

What belongs here: files in DLedger's layout, made from `dledger_formats` alone. What does not: any
code of the node or of the audit, so that this can contradict both.
"""
