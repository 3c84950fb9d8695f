"""Samples of tests: which cases of a long campaign a run keeps.

What belongs here: the choice, which depends on the sample's name alone, and the pytest plugin that
makes it. The tests themselves declare whether they are sampled, and how many cases are kept.
"""
