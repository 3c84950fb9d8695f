"""The audit of a group's logs: a Spark job that reads every member's log and reports faults.

This package captures the members' manifests, runs the checks and writes the report. Reading and
decoding segments belongs to the data source, `pyspark_dledger`. An audit never changes a member.
"""
