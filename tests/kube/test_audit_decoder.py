"""`decoder` of audits: which names are taken, and how the audit's program gets them."""

import pytest

from api_server.client import ApiServer, RefusedError
from api_server.objects import audit as sent_audit
from api_server.objects import check
from api_server.objects import group as sent_group
from dledger_kube.objects import audit_body, group
from dledger_operator.resources import audit_job
from dledger_operator.spec.audit_request import DECODER, AuditRequest
from dledger_operator.spec.spec_reader import InvalidSpecError
from pyspark_dledger.keys import DecoderError, decoder

pytest_plugins = ["api_server.fixtures"]

TAKEN = ["register", "kv", "rocketmq", "json:carrier", "json:a b", "json.tool:main"]
REFUSED = ["keys", "json:", "kv ", "Kv", "my-module:f", "a:b:c", ":f"]


def arguments(name: str) -> list[str]:
    request = AuditRequest.from_body(audit_body({"decoder": name} if name else {}))
    return audit_job.arguments(request, group(), ["n0"])


@pytest.mark.parametrize("name", TAKEN)
def test_the_program_gets_the_decoder_and_knows_it(api_server: ApiServer, name: str) -> None:
    check(api_server, sent_audit(decoder=name))
    check(api_server, sent_group(audit={"schedule": "@daily", "decoder": name}))
    told = arguments(name)

    assert told[told.index("--decoder") + 1] == name
    if "." not in name:
        assert callable(decoder(name))


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_is_no_decoder_is_refused_before_any_audit_begins(
    api_server: ApiServer, name: str
) -> None:
    for wrong in (
        sent_audit(decoder=name),
        sent_group(audit={"schedule": "@daily", "decoder": name}),
    ):
        with pytest.raises(RefusedError, match="decoder must be register, kv, json:FIELD"):
            check(api_server, wrong)
    with pytest.raises(InvalidSpecError, match="must be register, kv, json:FIELD"):
        arguments(name)
    assert not DECODER.fullmatch(name)
    with pytest.raises(DecoderError):
        decoder(name)


def test_audits_of_a_group_have_its_decoder_and_others_have_none() -> None:
    policy = group(audit={"schedule": "@daily", "decoder": "kv"}).audit

    assert policy is not None
    assert policy.request == {"decoder": "kv"}
    assert "--decoder" not in arguments("")
