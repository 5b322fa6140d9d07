"""The frozen tables of an audit: cases of a finished run, each beside its attacked and its probed forms."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, Problem
from ragpipe.extras.checks.attacks import attack_suite
from ragpipe.extras.checks.audit_figures import AuditPair
from ragpipe.extras.checks.changed_cases import CaseRecord, ChangedCases
from ragpipe.extras.checks.mutant_draw import SEPARATOR, drawn_order, is_usable
from ragpipe.extras.checks.probes import CONTROL, PROBES_VERSION, Probe
from ragpipe.schema.sample import Case, Output
from ragpipe.store.run.run_folder import RunFolder

_POOL = 4
"""Cases looked at for each that is wanted: some declined, or failed."""
BASES = 5
"""Wrong answers that attacks are put into, at most."""


class AuditSource(ChangedCases):
    """Attacked and probed cases of a finished run.

    `<method>~wrong_answer` is the answer of another question: the base of all attacks, and the control of the probes. What changes
    an output is a method of the same sample, `<method>~<name>`; what changes a sample is one of its own, `<id>~<name>`. Raises DataError
    where the run's tables are missing or were changed.

    Args:
        source: the folder of the finished run.
        manifest: its manifest.
        attacks: names of attacks.
        cases: wrong answers that each attack is put into.
        probes: the probes.
        n: cases that each probe changes, at most.
        seed: the seed of the draw.
    """

    def __init__(
        self,
        source: RunFolder,
        manifest: dict[str, Any],
        *,
        attacks: Sequence[str],
        cases: int,
        probes: Sequence[Probe],
        n: int,
        seed: int,
    ):
        super().__init__(source, manifest, change="audited", seed=seed)
        self._attacks, self._cases, self._probes, self._n = tuple(attacks), cases, tuple(probes), n

    @property
    def digest(self) -> str:
        """The digest of the run's frozen cases and of what is done to them."""
        names = [list(self._attacks), [probe.what for probe in self._probes]]
        versions = [attack_suite().digest, PROBES_VERSION]
        return sha256(["judge_audit", self._frozen, *versions, *names, self._cases, self._n, self._seed])

    @cached_property
    def _drawn(self) -> list[Case]:
        """The cases in the order of the draw, one per question. Raises DataError for fewer than two."""
        cases: dict[str, Case] = {}
        wanted_cases = _POOL * max(self._n if self._probes else 0, BASES)
        for case in sorted(self._pool(wanted_cases), key=lambda case: drawn_order(case.key, self._seed)):
            if is_usable(case):
                cases.setdefault(case.sample.id, case)
        if len(cases) >= 2:
            return list(cases.values())
        problem = Problem(
            str(self._source.root),
            "outputs",
            f"answers to {len(cases)} questions",
            "answers to at least two: a wrong answer is that of another question",
            "audit a run with recorded answers",
        )
        raise DataError("there is nothing to audit", [problem])

    @cached_property
    def _made(self) -> tuple[list[AuditPair], list[Case]]:
        """The pairs, and all cases of the audit: originals, wrong answers, attacked and probed ones."""
        pairs: list[AuditPair] = []
        cases: dict[tuple[str, str, int], Case] = {}
        for pair, base, changed in (*self._attacked(), *self._probed()):
            pairs.append(pair)
            for case in (base, changed):
                cases.setdefault(case.key[:3], case)
        return pairs, list(cases.values())

    @property
    def pairs(self) -> list[AuditPair]:
        """Each changed case with what it is compared with. Raises DataError."""
        return self._made[0]

    def _attacked(self) -> Iterator[tuple[AuditPair, Case, Case]]:
        suite, drawn = attack_suite(), self._drawn
        wrong = [self._wrong(place) for place in range(min(BASES, len(drawn)))]
        for number, name in enumerate(self._attacks):
            attack, made = suite.attacks[name], 0
            for turn in range(len(wrong)):
                base = wrong[(number + turn) % len(wrong)]
                attacked = suite.attacked(name, base)
                if attacked is None or made == self._cases:
                    continue
                changed, made = _renamed(base, attacked, name), made + 1
                pair = AuditPair("attack", name, base.key[:3], changed.key[:3], attack.group, attack.part)
                yield pair, base, changed

    def _probed(self) -> Iterator[tuple[AuditPair, Case, Case]]:
        if not self._probes:
            return
        by_name = {probe.name: probe for probe in self._probes}
        for place, case in enumerate(self._drawn[: self._n]):
            wrong = self._wrong(place)
            yield AuditPair("probe", CONTROL, case.key[:3], wrong.key[:3]), case, wrong
            for probe in self._probes:
                base = self._changed(case, by_name[probe.against]) if probe.against else case
                changed = self._changed(case, probe)
                if base is not None and changed is not None:
                    yield AuditPair("probe", probe.name, base.key[:3], changed.key[:3]), base, changed

    def _changed(self, case: Case, probe: Probe) -> Case | None:
        rng = random.Random(sha256([self._seed, probe.name, *case.key[:3]]))
        output = probe.change(case, rng)
        return (
            None if output is None or output == case.output else _renamed(case, _with_output(case, output), probe.name)
        )

    def _wrong(self, place: int) -> Case:
        """A case with the answer of the next question of the draw, which cites nothing."""
        case, donor = self._drawn[place], self._drawn[(place + 1) % len(self._drawn)]
        output = case.output.model_copy(update={"answer": donor.answer, "citations": None})
        return _renamed(case, _with_output(case, output), CONTROL)

    def _records(self) -> Iterator[CaseRecord]:
        """Each sample with all of its outputs."""
        by_sample: dict[str, list[Case]] = {}
        for case in self._made[1]:
            by_sample.setdefault(case.sample.id, []).append(case)
        where = str(self._source.outputs)
        for cases in by_sample.values():
            yield from (CaseRecord(case.sample, case.output, where) for case in cases)


def _with_output(case: Case, output: Output) -> Case:
    return Case(case.sample, output, case.iteration)


def _renamed(base: Case, changed: Case, name: str) -> Case:
    """The changed case under a name of its own. Recorded judgements, times and costs are the original's: they go."""
    sample, output = changed.sample, changed.output
    update: dict[str, Any] = {"recorded": {}, "timings": {}, "usage": {}}
    if sample != base.sample:
        sample = sample.model_copy(update={"id": f"{sample.id}{SEPARATOR}{name}"})
        update["sample_id"] = sample.id
    update["method"] = f"{output.method}{SEPARATOR}{name}"
    return Case(sample, output.model_copy(update=update), changed.iteration)
