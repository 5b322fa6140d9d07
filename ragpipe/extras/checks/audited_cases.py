"""The cases of an audit: wrong answers with an attack in them, and answers as they are with what should change no score."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from ragpipe.core.digest import sha256
from ragpipe.extras.checks.attacks import attack_suite
from ragpipe.extras.checks.changed_cases import ChangedCase, Pair, drawn_order, is_usable, renamed, with_output
from ragpipe.extras.checks.probes import CONTROL, Probe
from ragpipe.schema.sample import Case

POOL = 4
"""Cases looked at for each that is wanted: some declined, or failed."""
BASES = 5
"""Wrong answers that attacks are put into, at most."""


def drawn_cases(pool: Sequence[Case], seed: int) -> list[Case]:
    """The usable cases in the order of the draw, one per question."""
    cases: dict[str, Case] = {}
    for case in sorted(pool, key=lambda case: drawn_order(case.key, seed)):
        if is_usable(case):
            cases.setdefault(case.sample.id, case)
    return list(cases.values())


def attacked_cases(drawn: Sequence[Case], attacks: Sequence[str], cases: int) -> Iterator[ChangedCase]:
    """Each attack in up to `cases` wrong answers: `<method>~wrong_answer` is the answer of another question."""
    suite = attack_suite()
    wrong = [_wrong(drawn, place) for place in range(min(BASES, len(drawn)))]
    for number, name in enumerate(attacks):
        attack, made = suite.attacks[name], 0
        for turn in range(len(wrong)):
            base = wrong[(number + turn) % len(wrong)]
            attacked = suite.attacked(name, base)
            if attacked is None or made == cases:
                continue
            changed, made = renamed(base, attacked, name), made + 1
            yield ChangedCase(
                Pair("attack", name, base.key[:3], changed.key[:3], attack.group, attack.part), base, changed
            )


def probed_cases(drawn: Sequence[Case], probes: Sequence[Probe], n: int, seed: int) -> Iterator[ChangedCase]:
    """The first `n` cases under each probe, and with a wrong answer: the control."""
    by_name = {probe.name: probe for probe in probes}
    for place, case in enumerate(drawn[:n] if probes else ()):
        wrong = _wrong(drawn, place)
        yield ChangedCase(Pair("probe", CONTROL, case.key[:3], wrong.key[:3]), case, wrong)
        for probe in probes:
            base = _probed(case, by_name[probe.against], seed) if probe.against else case
            changed = _probed(case, probe, seed)
            if base is not None and changed is not None:
                yield ChangedCase(Pair("probe", probe.name, base.key[:3], changed.key[:3]), base, changed)


def _probed(case: Case, probe: Probe, seed: int) -> Case | None:
    output = probe.change(case, random.Random(sha256([seed, probe.name, *case.key[:3]])))
    return None if output is None or output == case.output else renamed(case, with_output(case, output), probe.name)


def _wrong(drawn: Sequence[Case], place: int) -> Case:
    """A case with the answer of the next question of the draw, which cites nothing."""
    case, donor = drawn[place], drawn[(place + 1) % len(drawn)]
    output = case.output.model_copy(update={"answer": donor.answer, "citations": None})
    return renamed(case, with_output(case, output), CONTROL)
