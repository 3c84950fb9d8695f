"""What a program, or a package, says if a library that it needs is not installed."""

from collections.abc import Callable, Collection
from typing import Any, Final

_OWN: Final = ("dledger_", "pyspark_dledger")


def advice(program: str, extra: str, error: ModuleNotFoundError) -> str:
    """Return a line that names the missing package and how to install it.

    Raises `error` if the module is one of this project's own: that is no matter of installing.
    """
    return _sentence(program, extra, error, "program") + "\n"


def told_at_first_use(
    package: str, extra: str, error: ModuleNotFoundError, names: Collection[str]
) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package whose public names cannot be imported.

    So the package itself can be imported, and a program in it can print the advice. Raises `error`
    as `advice` does.
    """
    sentence, missing = _sentence(package, extra, error, "package"), error.name

    def attribute(name: str) -> Any:
        if name in names:
            raise ModuleNotFoundError(sentence, name=missing)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute


def _sentence(what: str, extra: str, error: ModuleNotFoundError, kind: str) -> str:
    if error.name is None or error.name.startswith(_OWN):
        raise error
    return (
        f"{what}: the Python package {error.name} is not installed; install this {kind} "
        f"with: pip install 'dledger-operator[{extra}]'"
    )
