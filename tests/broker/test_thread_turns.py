"""How many reads of one connection threads do at a time."""

from collections import deque
from collections.abc import Callable

from dledger_broker.door.reading.thread_turns import AT_ONCE, ThreadTurns
from dledger_formats.log.disk import ENTRY_SIZE_MAX
from dledger_node.remoting.limits import Limits
from dledger_node.remoting.read_turns import ReadTurns


class Connection:
    """A connection whose reads begin, and are answered when the test says so."""

    def __init__(self) -> None:
        self.unread_since_s: float | None = None
        self.reads_waiting = 0
        self.begun: list[int] = []

    def send(self, data: bytes) -> None:
        pass

    def go_on(self) -> None:
        pass

    def read(self, number: int) -> Callable[[], None]:
        return lambda: self.begun.append(number)


class Turns:
    """The turns of an event loop that the test runs."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self.of_loop = ReadTurns(self._due.append, lambda: 0.0)
        self.of_threads = ThreadTurns(self.of_loop)

    def run(self) -> None:
        while self._due:
            self._due.popleft()()

    def begin(self, connection: Connection, count: int) -> None:
        for number in range(count):
            self.of_threads.begin(connection, connection.read(number))


def test_few_reads_of_a_connection_are_done_at_once_and_the_others_in_order() -> None:
    turns, connection, other = Turns(), Connection(), Connection()
    turns.begin(connection, 5)
    turns.begin(other, 1)
    assert (connection.begun, other.begun) == ([0, 1], [0])

    for _ in range(5):
        turns.of_threads.done(connection)
        turns.run()

    assert connection.begun == [0, 1, 2, 3, 4]
    assert connection.reads_waiting == 0
    turns.begin(connection, AT_ONCE)
    assert connection.begun[5:] == [0, 1], "all earlier reads are done"


def test_no_read_begins_while_the_client_does_not_read_its_answers() -> None:
    turns, connection = Turns(), Connection()
    turns.begin(connection, 4)
    connection.unread_since_s = 1.0
    for _ in range(2):
        turns.of_threads.done(connection)
        turns.run()
    assert connection.begun == [0, 1]

    connection.unread_since_s = None
    turns.of_loop.resume(connection)
    turns.run()

    assert connection.begun == [0, 1, 2, 3]


def test_a_connection_that_is_closed_leaves_nothing_behind() -> None:
    turns, connection = Turns(), Connection()
    turns.begin(connection, 4)
    turns.of_threads.forget(connection)
    for _ in range(2):
        turns.of_threads.done(connection)
        turns.run()

    assert connection.begun == [0, 1]
    assert not turns.of_threads._under_way
    assert not turns.of_threads._waiting


def test_the_reads_of_one_connection_stay_below_the_limit_on_unread_answers() -> None:
    limits = Limits()

    assert limits.unsent_bytes_high + AT_ONCE * ENTRY_SIZE_MAX < limits.unsent_bytes_max
