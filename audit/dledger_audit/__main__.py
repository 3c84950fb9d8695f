"""Run with `python -m dledger_audit`, as the console script does."""

import sys

from dledger_audit.main import main

sys.exit(main())
