"""What tests of the operator share: objects as the API serves them, a store of pods with the API's
rules of conflict, and members that answer over real HTTP.
"""
