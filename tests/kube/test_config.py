"""The operator's own settings."""

import pytest

from dledger_operator import config

GIVEN = {"DLEDGER_OPERATOR_NODE_IMAGE": "node:1", "DLEDGER_OPERATOR_AUDIT_IMAGE": "audit:1"}


def test_two_images_are_all_that_is_needed() -> None:
    read = config.read([], GIVEN)

    assert (read.node_image, read.audit_image) == ("node:1", "audit:1")
    assert (read.metrics_port, read.health_port, read.watch_namespaces) == (8080, 8081, ())


def test_a_flag_wins_over_its_variable() -> None:
    assert config.read(["--node-image", "node:2"], GIVEN).node_image == "node:2"


def test_an_empty_variable_is_a_variable_that_is_not_set() -> None:
    read = config.read([], GIVEN | {"DLEDGER_OPERATOR_WATCH_NAMESPACES": ""})

    assert read.watch_namespaces == ()


def test_namespaces_are_a_list() -> None:
    read = config.read([], GIVEN | {"DLEDGER_OPERATOR_WATCH_NAMESPACES": "a, b,,c"})

    assert read.watch_namespaces == ("a", "b", "c")


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"DLEDGER_OPERATOR_NODE_IMAGE": ""}, "DLEDGER_OPERATOR_NODE_IMAGE is not set"),
        ({"DLEDGER_OPERATOR_METRIC_PORT": "1"}, "did you mean DLEDGER_OPERATOR_METRICS_PORT?"),
        ({"DLEDGER_OPERATOR_ZZZ": "1"}, "known are DLEDGER_OPERATOR_NODE_IMAGE"),
        ({"DLEDGER_OPERATOR_METRICS_PORT": "http"}, "a port is expected"),
        ({"DLEDGER_OPERATOR_HEALTH_PORT": "70000"}, "a port is expected"),
        ({"DLEDGER_OPERATOR_LOG_FORMAT": "xml"}, "it must be text or json"),
        ({"DLEDGER_OPERATOR_IMAGE_PULL_POLICY": "Sometimes"}, "it must be IfNotPresent or"),
    ],
)
def test_a_wrong_setting_is_named(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(config.SettingsError) as refused:
        config.read([], GIVEN | environment)

    assert complaint in str(refused.value)


def test_other_programs_variables_are_none_of_its_business() -> None:
    assert config.read([], GIVEN | {"DLEDGER_GROUP": "x", "PATH": "/bin"})
