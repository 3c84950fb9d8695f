"""A plugin of pytest that plants the bug named by MUTANT before anything imports the node."""

import os

from dledger_sim.mutants import hunt

(_mutant,) = [each for each in hunt.load() if each.name == os.environ["MUTANT"]]
hunt.plant(_mutant)
