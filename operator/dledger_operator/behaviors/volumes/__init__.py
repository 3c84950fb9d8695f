"""The volume claims of a group: their owners, their growth, and recreating a StatefulSet whose
templates have become too small for them. `members` decides which members have a claim.
"""
