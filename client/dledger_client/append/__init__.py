"""Appending entries: single bodies, streams of bodies, batches that share a request, producers.

`outcomes` says what became of an append: acknowledged, refused or unknown.
"""
