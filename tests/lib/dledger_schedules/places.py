"""The lines of a store at which its threads meet: those that use what some method changes.

An attribute that is assigned outside of constructors is shared by the threads that call methods of
its object. A line that loads or assigns such an attribute, or the line after one, is a place where
another thread may see or make a half-done change. There are far fewer of them than lines. A few
schedules show which threads come to which places; then each pair of a thread and a place is chosen
as often as any other of that thread, however rarely it is met.
"""

import dis
import inspect
import itertools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

_CONSTRUCTORS: Final = frozenset({"__init__", "__post_init__", "__new__"})
_STORES: Final = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
Place = tuple[CodeType, int]
"""A line of a function's code."""
Meetings = Mapping[Place, Collection[str]]
"""By place: the names of the threads that may be held there."""


def shared_places(prefix: str, is_traced: Callable[[str], bool]) -> list[Place]:
    """Return the places of the imported modules with a prefix, always in the same order."""
    modules = {
        name: module
        for name, module in sorted(sys.modules.items())
        if name.startswith(prefix) and is_traced(name)
    }
    codes = [code for module in modules.values() for code in _codes_of(module)]
    shared = {
        str(one.argval)
        for code in codes
        if code.co_name not in _CONSTRUCTORS
        for one in dis.get_instructions(code)
        if one.opname in _STORES
    }
    return [(code, line) for code in codes for line in sorted(_lines_of(code, shared))]


def _lines_of(code: CodeType, shared: set[str]) -> set[int]:
    """Return the lines that use a shared attribute, and those that run after them."""
    if code.co_name in _CONSTRUCTORS:
        return set()
    lines = sorted({line for _, _, line in code.co_lines() if line is not None})
    used, line = set[int](), code.co_firstlineno
    for one in dis.get_instructions(code):
        line = one.starts_line or line
        if one.opname in _STORES | _LOADS and one.argval in shared:
            used.add(line)
    following = {later for earlier, later in itertools.pairwise(lines) if earlier in used}
    return used | following


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if inspect.isclass(value) else [value]
        for member in members:
            yield from _codes_of_member(member)


def _codes_of_member(member: Any) -> Iterator[CodeType]:
    parts = [member.fget, member.fset] if isinstance(member, property) else [member]
    for part in parts:
        function = inspect.unwrap(getattr(part, "__func__", part)) if part else None
        is_generated = isinstance(function, FunctionType) and (
            function.__code__.co_filename.startswith("<")
        )
        if isinstance(function, FunctionType) and not is_generated:
            yield from _nested(function.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
