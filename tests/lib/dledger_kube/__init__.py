"""Shared code of the operator's tests: sample objects, a fake pod store with the API's conflict
rules, and fake members that answer over real HTTP.
"""
