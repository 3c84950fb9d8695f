"""Hostile inputs: sound bytes of every format, damaged in several ways.

`mutate` makes the inputs from a seed; the decoders are in the other modules.
"""
