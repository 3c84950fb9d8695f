"""Locks that their holders renew: those of killed runs end."""

from collections.abc import Callable

import pytest

from dledger_audit.renewed_lock import LOOK_S, RENEWAL_S, STALE_S, LockHeldError, RenewedLock


class Files:
    """A folder, and the time; `happen` is called whenever a run sleeps."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.now_s = 0.0
        self.happen: Callable[[], object] = lambda: None

    def create(self, name: str) -> bool:
        if name in self.content:
            return False
        self.content[name] = b""
        return True

    def read(self, name: str) -> bytes | None:
        return self.content.get(name)

    def write(self, name: str, content: bytes) -> None:
        self.content[name] = content

    def move(self, name: str, to: str) -> bool:
        if name not in self.content or to in self.content:
            return False
        self.content[to] = self.content.pop(name)
        return True

    def remove(self, name: str) -> None:
        self.content.pop(name, None)

    def lock(self) -> RenewedLock:
        return RenewedLock(self, "lock", clock=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.happen()


def test_a_lock_is_gone_after_its_run() -> None:
    files, lock = Files(), None
    for _ in range(2):
        lock = files.lock()
        lock.acquire()
        lock.check()
        lock.release()

    assert files.content == {}
    assert files.now_s == 0


def test_a_run_is_refused_as_soon_as_it_sees_that_the_other_one_lives() -> None:
    files = Files()
    first, second = files.lock(), files.lock()
    first.acquire()
    renewals = iter((0, 0, 1))
    files.happen = lambda: first.check() if next(renewals) else None

    with pytest.raises(LockHeldError):
        second.acquire()

    assert files.now_s == 3 * LOOK_S
    first.check()


def test_a_renewal_comes_several_times_before_a_lock_is_stale() -> None:
    assert STALE_S >= 5 * (RENEWAL_S + LOOK_S)


def test_the_lock_of_a_killed_run_is_taken_over_and_the_run_finds_out_if_it_goes_on() -> None:
    files = Files()
    killed, second = files.lock(), files.lock()
    killed.acquire()

    second.acquire()

    assert STALE_S <= files.now_s <= STALE_S + 2 * LOOK_S
    assert set(files.content) == {"lock"}
    with pytest.raises(LockHeldError):
        killed.check()
    killed.release()
    second.check()


def test_the_lock_of_a_run_that_was_killed_before_it_wrote_its_name_is_taken_over() -> None:
    files = Files()
    files.content["lock"] = b""

    files.lock().acquire()


def test_a_lock_that_is_removed_meanwhile_is_free() -> None:
    files = Files()
    first = files.lock()
    first.acquire()
    files.happen = first.release

    files.lock().acquire()

    assert files.now_s == LOOK_S


def test_of_two_runs_that_wait_for_a_killed_one_only_one_gets_the_lock() -> None:
    """The second sees the dead lock, and is late when it moves it out of the way."""
    files = Files()
    files.lock().acquire()
    second, third = files.lock(), files.lock()
    move = files.move

    def late(name: str, to: str) -> bool:
        files.move = move  # type: ignore[method-assign]
        second.acquire()
        return move(name, to)

    files.move = late  # type: ignore[method-assign]
    with pytest.raises(LockHeldError):
        third.acquire()

    assert set(files.content) == {"lock"}
    second.check()


class Tearing(Files):
    """A file system in which a write fails after it has emptied the file."""

    is_broken = False

    def write(self, name: str, content: bytes) -> None:
        if self.is_broken:
            super().write(name, b"")
            raise OSError("no data node")
        super().write(name, content)


def test_a_renewal_that_fails_in_its_middle_does_not_lose_the_lock() -> None:
    files = Tearing()
    lock = files.lock()
    lock.acquire()
    for _ in range(2):
        files.is_broken = True
        for _ in range(4):
            files.now_s += RENEWAL_S
            with pytest.raises(OSError, match="no data node"):
                lock.check()

        files.is_broken = False
        lock.check()

    files.is_broken = True
    with pytest.raises(OSError, match="no data node"):
        lock.check()
    lock.release()
    assert files.content == {}


def test_an_emptied_lock_is_lost_once_another_run_may_have_taken_it_over() -> None:
    files = Tearing()
    lock = files.lock()
    lock.acquire()
    files.is_broken = True
    with pytest.raises(OSError, match="no data node"):
        lock.check()
    files.is_broken = False
    files.now_s += STALE_S

    with pytest.raises(LockHeldError):
        lock.check()
    lock.release()
    assert files.content == {"lock": b""}


def test_an_empty_lock_that_another_run_has_just_made_is_not_ones_own() -> None:
    files = Files()
    lock = files.lock()
    lock.acquire()
    files.content["lock"] = b""

    with pytest.raises(LockHeldError):
        lock.check()


def test_a_lock_is_renewed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger_audit.renewed_lock.RENEWAL_S", 0.001)
    monkeypatch.setattr("dledger_audit.renewed_lock.LOOK_S", 0.01)
    files = Files()
    lock, other = files.lock(), RenewedLock(files, "lock")
    lock.acquire()

    with lock.renewed(), pytest.raises(LockHeldError):
        other.acquire()

    lock.check()
