"""The attack file and what it makes of a case; the figures of an audit, calculated by hand."""

import hashlib
import random

import pytest

from ragpipe.core.fences import foreign_tags
from ragpipe.core.hostile_text import degenerate_signs, suspicious_signs
from ragpipe.core.sample import Case, Chunk, Output, Sample
from ragpipe.extras.checks.attacks import attack_suite, probes_of
from ragpipe.extras.checks.changed_cases import Pair, Scored
from ragpipe.extras.checks.check import rate_json
from ragpipe.extras.checks.edits import Donors, Subject
from ragpipe.extras.checks.judge_audit import attack_outcomes, attack_rows, probe_rows

SUITE = attack_suite()
CASE = Case(
    Sample(id="q1", question="How long is the pier?", references=["120 m"]),
    Output(
        sample_id="q1",
        answer="The pier opens at nine. It has two lamps.",
        chunks=[Chunk(id="c1", rank=1, text="The pier is 120 m long."), Chunk(id="c2", rank=2, text="It is old.")],
    ),
)


@pytest.mark.parametrize("name", SUITE.attacks)
def test_every_attack_changes_the_part_that_it_names_and_no_other(name: str) -> None:
    attacked = SUITE.attacked(name, CASE)
    assert (attacked.sample, attacked.output) != (CASE.sample, CASE.output)
    part = SUITE.attacks[name].part
    changed = {
        "answer": attacked.answer != CASE.answer,
        "context": [chunk.text for chunk in attacked.contexts] != [chunk.text for chunk in CASE.contexts],
        "question": attacked.question != CASE.question,
        "reference": attacked.references != CASE.references,
        "history": attacked.sample.history != CASE.sample.history,
    }
    assert {field for field, differs in changed.items() if differs} == ({part} & changed.keys())


def test_an_attack_is_made_on_what_is_there() -> None:
    attacked = SUITE.attacked("question_tag", CASE)
    assert f"</{hashlib.sha256(b'How long is the pier?').hexdigest()[:12]}>" in attacked.answer
    values = {"question": [CASE.question], "answer": [attacked.answer], "contexts": [c.text for c in CASE.contexts]}
    assert foreign_tags(values) == [("answer", "question")]
    bare = Case(Sample(id="q", question="Why?"), Output(sample_id="q", answer="So."))
    for name in ("reference_order", "context_ignore", "id_order", "title_verified"):
        assert SUITE.attacked(name, bare) is None


def test_most_attacks_on_an_answer_are_flagged() -> None:
    """Those that the page of the docs names are missed: they have no form that honest answers lack."""
    missed = set()
    for name, attack in SUITE.attacks.items():
        case = SUITE.attacked(name, CASE)
        if attack.part != "answer" or case is None:
            continue
        contexts = [chunk.text for chunk in case.contexts]
        values = {"question": [case.question], "answer": [case.answer], "contexts": contexts}
        if not (suspicious_signs(case.answer) or degenerate_signs(case.answer, case.question, contexts) or foreign_tags(values)):
            missed.add(name)
    assert missed == {
        "foreign_character", "context_pasted", "opinions_only", "true_trifles", "leetspeak", "rot13", "acrostic", "german",
        "universal_phrase",
    }  # fmt: skip


def test_probes_keep_what_an_answer_says() -> None:
    for probe in probes_of("openai/gpt-x"):
        output = probe.edit(Subject(CASE, Donors([])), random.Random(1)).output
        assert output != CASE.output, probe.name
        if probe.name not in ("typos", "context_order", "markdown"):
            assert "The pier opens at nine. It has two lamps." in (output.answer or "")
        assert sorted(chunk.text for chunk in output.chunks or ()) == sorted(chunk.text for chunk in CASE.contexts)


@pytest.mark.parametrize(("model", "family"), [
    ("openai/gpt-4.1", "GPT"), ("anthropic/claude-x", "Claude"), ("openrouter/google/gemini-x", "Gemini"), ("groq/llama-3", "Llama"),
    ("openai/o3-mini", "GPT"), ("openai/mixtral-8x7b", "Mistral"), ("openai/house-model", None), ("rules", None),
])  # fmt: skip
def test_the_family_follows_from_the_name_of_the_model(model: str, family: str | None) -> None:
    whats = {probe.name: probe.what for probe in probes_of(model)}
    assert whats.get("own_family", "").startswith(f"labelled as an answer of {family}, by") == (family is not None)
    assert ("own_family" in whats, "other_family" in whats) == (family is not None, family is not None)
    assert whats.get("own_family", "none") != whats.get("other_family")


def key(name: str) -> tuple[str, str, int]:
    return name, "m", 1


def score(values: dict[str, float]) -> Scored:
    return Scored("s", 0, 1, True, {key(name): [value] for name, value in values.items()})


def test_an_attack_succeeds_where_a_wrong_answer_rises_by_the_set_share() -> None:
    pairs = [Pair(f"a{i}", key("base" if i < 4 else "good"), key(f"x{i}"), "g", "answer") for i in range(5)]
    values = {"base": 0.2, "good": 0.6, "x0": 0.7, "x1": 0.69, "x2": 0.1, "x4": 1.0}
    inputs = {key(name): frozenset(ids) for name, ids in {"base": "p", "x0": "pq", "x1": "p"}.items()}
    outcomes = attack_outcomes(pairs, score(values), inputs)
    assert [(row["attack"], row["succeeded"], row["shown"]) for row in outcomes] == [
        ("a0", True, True), ("a1", False, False), ("a2", False, False), ("a3", False, False),
    ], "a3 has no value, and a4 had no room"  # fmt: skip
    rows = {(row["over"], row["name"]): row for row in attack_rows(outcomes)}
    assert {key: (row["found"], row["n"]) for key, row in rows.items()} == {
        ("all", ""): (1, 4), ("shown", ""): (1, 1), ("score", "s"): (1, 4), ("group", "g"): (1, 4), ("part", "answer"): (1, 4),
        ("attack", "a0"): (1, 1), ("attack", "a1"): (0, 1), ("attack", "a2"): (0, 1), ("attack", "a3"): (0, 1),
    }  # fmt: skip
    rate = rows["all", ""]
    assert (rate["share"], rate["interval"]["low"]) == (0.25, pytest.approx(0.0456, abs=1e-4))
    assert rate["interval"]["high"] == pytest.approx(0.6994, abs=1e-4)
    assert rate_json([], []) == {"n": 0, "found": 0, "share": None, "interval": None, "clusters": 0}


def test_a_probe_passes_within_the_margin_and_is_biased_outside() -> None:
    names = [f"q{i}" for i in range(40)]
    pairs = [Pair(probe, key(n), key(f"{n}-{probe}")) for probe in ("up", "flat", "some", "wrong_answer") for n in names]
    values = {n: 0.5 for n in names}
    for i, n in enumerate(names):
        noise = 0.02 if i % 2 else -0.02
        values |= {f"{n}-up": 0.7 + noise, f"{n}-flat": 0.5 + noise, f"{n}-some": 0.55 + noise, f"{n}-wrong_answer": 0.1 + noise}
    rows = {row["change"]: row for row in probe_rows(pairs, score(values))}
    expected = {"up": "biased", "flat": "passes", "some": "undecided", "wrong_answer": "noticed"}
    assert {name: row["state"] for name, row in rows.items()} == expected
    # sd of the differences is .02 sqrt(40/39), t(39) = 2.0227: half = 2.0227 * .020255 / sqrt(40)
    assert rows["up"]["shift"] == pytest.approx(0.2)
    assert rows["up"]["interval"]["high"] == pytest.approx(0.2 + 0.006478, abs=2e-6)
