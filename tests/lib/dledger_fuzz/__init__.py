"""Hostile inputs: sound bytes of every format, changed by hand-picked kinds of damage.

What belongs here: how inputs are made, from a seed. What must be true of them is the tests' matter.
"""
