"""What a scanner finds, and which findings are accepted: each of them with a reason, in suppressions.toml.

findings ─► minus the suppressions ─► what is to be mended
                    └─► those that match nothing are stale, and fail the scan as well
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

REASON_LENGTH_MIN = 30
"""A reason is a sentence."""


class BadSuppression(ValueError):
    """A suppression that does not say what it suppresses, or why."""


@dataclass(frozen=True)
class Finding:
    """One rule that one place breaks."""

    scanner: str
    rule: str
    where: str
    """The file, and in a template the logical id: `template.yaml PaymentsQueue`. Never a line, which moves."""
    message: str


@dataclass(frozen=True)
class Suppression:
    """The rule is not for this place."""

    scanner: str
    rule: str
    where: str
    """The finding's `where`; a `*` matches any characters."""
    reason: str

    def matches(self, finding: Finding) -> bool:
        same_rule = (self.scanner, self.rule) == (finding.scanner, finding.rule)
        return same_rule and fnmatchcase(finding.where, self.where)


def read_suppressions(toml: str) -> list[Suppression]:
    """One suppression for each place of each entry `[[scanner]]` with `rule`, `where` (a list) and `reason`.

    Raises:
        BadSuppression: an entry lacks one of them, or its reason is no sentence.
    """
    entries = [(scanner, entry) for scanner, entries in tomllib.loads(toml).items() for entry in entries]
    for scanner, entry in entries:
        if set(entry) != {"rule", "where", "reason"} or not entry["where"]:
            raise BadSuppression(f"{scanner} {entry.get('rule')}: it needs rule, where and reason, and nothing else")
        if len(entry["reason"].strip()) < REASON_LENGTH_MIN:
            raise BadSuppression(f"{scanner} {entry['rule']}: its reason is no sentence")
    return [
        Suppression(scanner, entry["rule"], where, " ".join(entry["reason"].split()))
        for scanner, entry in entries
        for where in entry["where"]
    ]


def to_be_mended(findings: Sequence[Finding], suppressions: Sequence[Suppression]) -> list[Finding]:
    """The findings that no suppression accepts."""
    return [each for each in findings if not any(suppression.matches(each) for suppression in suppressions)]


def stale(findings: Sequence[Finding], suppressions: Sequence[Suppression]) -> list[Suppression]:
    """The suppressions that no finding needs any more, or that are misspelled."""
    return [each for each in suppressions if not any(each.matches(finding) for finding in findings)]
