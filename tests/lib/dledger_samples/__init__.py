"""Samples of tests: which cases of a long campaign a run keeps.

What belongs here: the choice, which depends on the sample's name alone, and the pytest plugin that
makes it. Which tests are sampled, and how many of their cases are kept, they say themselves.
"""
