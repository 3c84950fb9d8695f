"""Entry point of `python -m dledger_audit`, the same as the console script."""

import sys

from dledger_audit.console_script import main

sys.exit(main())
