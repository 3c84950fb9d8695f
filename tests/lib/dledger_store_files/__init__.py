"""What tests of a member's store do to its files and ask of them.

What belongs here: reading a store through and through, and damaging its files. What is right is for
the tests to say.
"""
