"""A load whose command ends early says so."""

import subprocess

from dledger_e2e.load import TO_THE_END_OF_INPUT


def test_the_exit_code_of_a_load_is_logged_while_its_input_goes_on() -> None:
    command = ["sh", "-c", TO_THE_END_OF_INPUT, "sh", "sh", "-c", "exit 3"]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        assert shell.stderr is not None
        said = shell.stderr.readline()
        is_running = shell.poll() is None
        shell.stdin.close()

    assert said == b"dledger append has ended with exit code 3\n"
    assert (is_running, shell.returncode) == (True, 3)
