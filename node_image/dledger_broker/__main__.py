"""`python -m dledger_broker`, the same as `dledger-broker`."""

from dledger_broker.console_script import main

if __name__ == "__main__":
    raise SystemExit(main())
