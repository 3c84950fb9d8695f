"""Sets what Ctrl-C (SIGINT) does to a program while it starts, works and ends.

Python turns SIGINT into a KeyboardInterrupt. During imports, nothing can catch it. So
SIGINT has its default action until the program is ready for it, and again once it has ended: the
system ends the process, and a shell shows 130. A process that was started to ignore SIGINT, such as
a shell's background job, keeps ignoring it. This module imports little, because until it takes
effect, Ctrl-C still leads to a traceback.
"""

import signal
from collections.abc import Iterable

EXIT_INTERRUPTED = 130


def end_the_process() -> None:
    """Let SIGINT end the process at once from here on."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def not_ignored(signals: Iterable[int]) -> list[int]:
    """Return the signals that the process was not started to ignore; only these may be handled."""
    return [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]


def raise_keyboard_interrupt() -> None:
    """Let SIGINT raise KeyboardInterrupt from here on."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
