"""The audit of a group's logs: a Spark job that reads every member and says what is wrong.

What belongs here: capturing what the members say, the checks, and the report. What does not:
reading and decoding segments, which is the data source's, and repairing anything: an audit changes
nothing.
"""
