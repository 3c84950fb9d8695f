"""`python -m dledger_broker`, the same as `dledger-broker`."""

from dledger_broker.main import main

if __name__ == "__main__":
    raise SystemExit(main())
