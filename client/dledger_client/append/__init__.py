"""Appending entries: single bodies, batches, streams of bodies, and producers.

`outcomes` defines the three outcomes of an append: acknowledged, refused and unknown.
"""
