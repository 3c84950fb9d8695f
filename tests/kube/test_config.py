"""The operator's own settings."""

import pytest

from dledger_operator import config

GIVEN = {"DLEDGER_OPERATOR_NODE_IMAGE": "node:1", "DLEDGER_OPERATOR_AUDIT_IMAGE": "audit:1"}


def test_only_the_two_images_are_required() -> None:
    read = config.read([], GIVEN)

    assert (read.node_image, read.audit_image) == ("node:1", "audit:1")
    assert (read.metrics_port, read.health_port, read.watch_namespaces) == (8080, 8081, ())


def test_a_flag_overrides_its_variable() -> None:
    assert config.read(["--node-image", "node:2"], GIVEN).node_image == "node:2"


def test_an_empty_variable_counts_as_unset() -> None:
    read = config.read([], GIVEN | {"DLEDGER_OPERATOR_WATCH_NAMESPACES": ""})

    assert read.watch_namespaces == ()


def test_namespaces_are_a_comma_separated_list() -> None:
    read = config.read([], GIVEN | {"DLEDGER_OPERATOR_WATCH_NAMESPACES": "a, b,,c"})

    assert read.watch_namespaces == ("a", "b", "c")


def test_nodes_are_watched_unless_that_is_switched_off() -> None:
    assert config.read([], GIVEN).watch_nodes
    assert not config.read(["--watch-nodes", "false"], GIVEN).watch_nodes


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"DLEDGER_OPERATOR_NODE_IMAGE": ""}, "DLEDGER_OPERATOR_NODE_IMAGE is not set"),
        ({"DLEDGER_OPERATOR_METRIC_PORT": "1"}, "did you mean DLEDGER_OPERATOR_METRICS_PORT?"),
        ({"DLEDGER_OPERATOR_ZZZ": "1"}, "known settings: DLEDGER_OPERATOR_NODE_IMAGE"),
        ({"DLEDGER_OPERATOR_METRICS_PORT": "http"}, "it must be a port"),
        ({"DLEDGER_OPERATOR_HEALTH_PORT": "70000"}, "it must be a port"),
        ({"DLEDGER_OPERATOR_WATCH_NODES": "yes"}, "it must be true or false"),
        ({"DLEDGER_OPERATOR_LOG_FORMAT": "xml"}, "it must be text or json"),
        ({"DLEDGER_OPERATOR_IMAGE_PULL_POLICY": "Sometimes"}, "it must be IfNotPresent or"),
    ],
)
def test_an_invalid_setting_is_named(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(config.SettingsError) as refused:
        config.read([], GIVEN | environment)

    assert complaint in str(refused.value)


def test_the_two_ports_must_differ() -> None:
    with pytest.raises(config.SettingsError, match="are both 8080; use two ports"):
        config.read(["--node-image=a", "--audit-image=b", "--health-port=8080"], {})


def test_variables_of_other_programs_are_ignored() -> None:
    assert config.read([], GIVEN | {"DLEDGER_GROUP": "x", "PATH": "/bin"})
