"""A load whose command ends early says so; its pauses have a bound for most and one for all."""

import subprocess

import pytest

from dledger_e2e.load import TO_THE_END_OF_INPUT, assert_pauses_are_short


def test_the_exit_code_of_a_load_is_logged_while_its_input_goes_on() -> None:
    command = ["sh", "-c", TO_THE_END_OF_INPUT, "sh", "sh", "-c", "exit 3"]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        assert shell.stderr is not None
        output = shell.stderr.readline()
        is_running = shell.poll() is None
        shell.stdin.close()

    assert output == b"dledger append has ended with exit code 3\n"
    assert (is_running, shell.returncode) == (True, 3)


@pytest.mark.parametrize("gaps_s", [[0.2], [0.2, 4.9], [0.2, 4.9, 0.3]])
def test_one_long_pause_is_borne(gaps_s: list[float]) -> None:
    assert_pauses_are_short(gaps_s, longest_s_max=5.0)


@pytest.mark.parametrize("gaps_s", [[5.1], [1.1, 1.2, 0.2]], ids=["too long", "most are long"])
def test_a_pause_that_is_far_too_long_and_pauses_that_are_mostly_long_fail(
    gaps_s: list[float],
) -> None:
    with pytest.raises(AssertionError):
        assert_pauses_are_short(gaps_s, longest_s_max=5.0)
