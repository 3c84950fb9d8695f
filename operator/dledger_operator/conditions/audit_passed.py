"""AuditPassed: the last audit of the group's logs found nothing wrong."""

from typing import Final

from dledger_formats.audit import Verdict
from dledger_operator import names
from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_audits import FAILED, EndedAudit, ObservedAudits
from dledger_operator.observed_state import AuditFinding, ObservedGroup

TYPE = "AuditPassed"
_ADVICE: Final = {
    Verdict.INCOMPLETE: (
        "something could not be read, and the rest is sound: see that the members which the "
        "findings name run and are Sound, then audit again"
    ),
    FAILED: "it ended without a verdict: follow its message, then audit again",
}


def judge(observed: ObservedGroup) -> Judgment:
    """Report what the last audit found. Damage stays until an audit that began later is Sound.
    The status is unknown before the first audit, after an inconclusive one, and while the operator
    cannot audit as the spec asks for.
    """
    finding, audits = observed.audit, observed.audits
    if finding and finding.verdict is not Verdict.SOUND:
        return Judgment(holds=False, reason=finding.verdict.value, message=message_of(finding))
    last, problem = audits.last, audits.problem
    if last and last.result in _ADVICE and _is_later(last, finding):
        message = f"audit {last.audit}: {last.message}; {_ADVICE[last.result]}"
        message = f"{message}; {problem.message}" if problem else message
        message = f"{message}; {audits.waiting}" if audits.waiting else message
        return Judgment(holds=None, reason=last.result, message=_since(message, finding))
    if problem:
        return Judgment(holds=None, reason=problem.reason, message=_since(problem.message, finding))
    if finding is None:
        message = "no audit has ended yet; create a DLedgerAudit, or set spec.audit.schedule"
        return Judgment(holds=None, reason="NeverAudited", message=_upcoming(message, audits))
    at = names.timestamp(finding.started_at)
    message = f"audit {finding.audit}, begun at {at}: {finding.message}"
    return Judgment(
        holds=True, reason=Verdict.SOUND.value, message=_upcoming(message, observed.audits)
    )


def message_of(finding: AuditFinding) -> str:
    """Return the finding and what to do about damage, which stays until a later Sound audit."""
    advice = (
        "members mend what they can from their peers; audit again, and follow the advice of each "
        "finding that is left"
    )
    if finding.verdict is Verdict.DIVERGED:
        advice = (
            "members hold different committed entries or states: keep copies of all volumes before "
            "you change anything, then follow the advice of each finding"
        )
    return f"audit {finding.audit}: {finding.message}; {advice}; a later Sound audit clears this"


def _is_later(last: EndedAudit, finding: AuditFinding | None) -> bool:
    began_at = last.started_at or last.ended_at
    return finding is None or began_at > finding.started_at


def _since(message: str, finding: AuditFinding | None) -> str:
    if finding is None:
        return message
    at = names.timestamp(finding.started_at)
    return f"{message}; audit {finding.audit}, begun at {at}, was Sound"


def _upcoming(message: str, audits: ObservedAudits) -> str:
    if audits.waiting:
        return f"{message}; {audits.waiting}"
    next_at = audits.plan.next_at if audits.plan else None
    return f"{message}; the next one is due at {names.timestamp(next_at)}" if next_at else message
