"""The objects that a group owns: applied, repaired, and traced back to the group's founding."""
