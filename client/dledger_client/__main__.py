"""`python -m dledger_client`, the same as `dledger`."""

from dledger_client.console_script import main

if __name__ == "__main__":
    raise SystemExit(main())
