"""Appending entries: single bodies, batches, streams of bodies, and producers.

outcomes   the three outcomes of an append: acknowledged, refused and unknown
batches    bodies that share a request, if the server takes that
stream     a stream of bodies, with a window of appends in flight
in_order   bodies one request after another, which keeps their order
grouped    batches of bodies from a blocking iterator
producer   idempotent appends: assigns the numbers by which the group recognizes duplicates
"""
