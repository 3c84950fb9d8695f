"""The operator's IO: the Kubernetes API and the members' HTTP pages.

What belongs here: requests, their time and size limits, and the translation of answers and errors
into our own words. Nothing here decides anything.
"""
