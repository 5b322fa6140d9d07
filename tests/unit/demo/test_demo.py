"""The demonstration data: its form, and that the failures it declares are really there and nowhere else."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import ragpipe
from ragpipe.schema.sample import Anchor, Case, Chunk, Output, Sample

FOLDER = Path(ragpipe.__file__).parent / "data" / "demo"
METHODS = ("baseline", "rerank", "no_rerank_small_k")
KINDS = {
    *("unsupported_claim", "irrelevant_context", "irrelevant_answer", "missing_citation", "quote_only_violation"),
    *("policy_violation", "false_rejection", "false_acceptance", "training_cutoff_excuse", "retrieval_miss"),
    *("incomplete_answer", "hallucinated_unanswerable", "system_error"),
    *("wrong_number", "wrong_name", "dangling_citation", "scope_miss", "stale_source", "empty_answer"),
    "refusal_then_answer",
}
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
LINES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def _cases(lines: list[dict[str, Any]]) -> Iterator[Case]:
    for line in lines:
        sample = Sample.model_validate({key: value for key, value in line.items() if key != "outputs"})
        for output in line["outputs"]:
            yield Case(sample, Output.model_validate({**output, "sample_id": sample.id}))


CASES = list(_cases(LINES))


def planted(case: Case) -> list[str]:
    found: list[str] = case.sample.meta["planted"].get(case.output.method, [])
    return found


def anchor_matches(anchor: Anchor, chunk: Chunk, *, snippet: bool) -> bool:
    gold = (anchor.heading_path or "").split(" > ") if anchor.heading_path else []
    here = (chunk.heading_path or "").split(" > ")
    literal = not snippet or not anchor.snippets or any(piece in chunk.text for piece in anchor.snippets)
    return anchor.rel_path == chunk.rel_path and here[: len(gold)] == gold and literal


def matching(case: Case, *, form: str) -> list[str] | None:
    """Ids of the retrieved chunks that one form of the labels calls relevant; None without labels of that form."""
    sample, chunks = case.sample, case.contexts
    if form == "docs":
        return None if sample.relevant_docs is None else [c.id for c in chunks if c.doc_id in sample.relevant_docs]
    if form == "chunks":
        return None if sample.relevant_chunks is None else [c.id for c in chunks if c.id in sample.relevant_chunks]
    if sample.anchors is None:
        return None
    strict = form == "anchors with snippets"
    return [c.id for c in chunks if any(anchor_matches(a, c, snippet=strict) for a in sample.anchors)]


FORMS = ("docs", "chunks", "anchors", "anchors with snippets")


def has_gold(case: Case) -> bool:
    return bool(case.sample.relevant_docs or case.sample.relevant_chunks or case.sample.anchors)


def finest(case: Case) -> list[str]:
    """The chunks that the finest labels of the sample call relevant."""
    for form in ("chunks", "anchors with snippets", "docs"):
        found = matching(case, form=form)
        if found is not None:
            return found
    return []


def expects(case: Case, behavior: str) -> bool:
    return case.sample.expected is not None and case.sample.expected.behavior == behavior


def cited(case: Case) -> set[str]:
    return {citation.chunk_id for citation in case.output.citations or [] if citation.chunk_id}


def given(case: Case) -> str:
    """All that an answer may rest on, with each ISO date also spelled out (2024-03-05 is 5 March 2024)."""
    parts = [case.question, *(turn.text for turn in case.sample.history), *(chunk.text for chunk in case.contexts)]
    text = " ".join(parts)
    dates = [date.fromisoformat(found) for found in re.findall(r"\d{4}-\d{2}-\d{2}", text)]
    return " ".join([text, *(f"{day.day} {MONTHS[day.month - 1]} {day.year}" for day in dates)])


def retrieval_miss(case: Case) -> bool:
    return has_gold(case) and case.output.error is None and not finest(case)


def irrelevant_context(case: Case) -> bool:
    return has_gold(case) and bool(case.contexts) and len(finest(case)) / len(case.contexts) < 0.25


def scope_miss(case: Case) -> bool:
    if case.output.folder_mode not in ("on", "on_with_fallback"):
        return False
    folders = [folder.rstrip("/") + "/" for folder in case.output.selected_folders or []]
    return not any(a.rel_path.startswith(f) for a in case.sample.anchors or [] for f in folders)


def stale_source(case: Case) -> bool:
    roles = {
        anchor.role for anchor in case.sample.anchors or [] for chunk in case.contexts
        if chunk.id in cited(case) and anchor_matches(anchor, chunk, snippet=True)
    }  # fmt: skip
    return "older" in roles and "newer" not in roles


def dangling_citation(case: Case) -> bool:
    here = {chunk.id for chunk in case.contexts}
    return any(citation.chunk_id not in here for citation in case.output.citations or [])


def missing_citation(case: Case) -> bool:
    expected = case.sample.expected
    if expected is None or not expected.requires_citations or not case.answer or "false_rejection" in planted(case):
        return False
    sentences = re.split(r"(?<=[.!?])\s+(?!\[)", case.answer)
    share = sum(bool(re.search(r"\[\d+\]", sentence)) for sentence in sentences) / len(sentences)
    assert expected.min_citation_coverage is not None
    return share < expected.min_citation_coverage


def quote_only_violation(case: Case) -> bool:
    """The case asks for a literal quote of a quote-only chunk and the answer holds none."""
    if not (case.sample.expected and case.sample.expected.must_quote):
        return False
    quotes = [quote for quote in re.findall(r'"([^"]+)"', case.answer) if len(quote.split()) >= 5]
    return not any(quote in c.text for quote in quotes for c in case.contexts if c.policy == "quote_only")


def policy_violation(case: Case) -> bool:
    return bool(re.search(r"you should (buy|sell)|stock will go|price will reach", case.answer, re.IGNORECASE))


def training_cutoff_excuse(case: Case) -> bool:
    return bool(re.search(r"my (training|knowledge) cutoff", case.answer, re.IGNORECASE))


def refusal_then_answer(case: Case) -> bool:
    head = re.search(r"I'm unable to|I cannot|I don't have enough", case.answer)
    return head is not None and bool(re.search(r"\b(but|that said)\b", case.answer[head.end() :], re.IGNORECASE))


DECIDABLE: dict[str, Callable[[Case], bool]] = {
    "system_error": lambda case: case.output.error is not None,
    "empty_answer": lambda case: case.output.error is None and not case.answer,
    "hallucinated_unanswerable": lambda case: case.sample.answerable is False and not case.output.abstained,
    "false_acceptance": lambda case: expects(case, "reject") and not case.output.abstained,
    **{
        check.__name__: check
        for check in (
            *(retrieval_miss, irrelevant_context, scope_miss, stale_source, dangling_citation, missing_citation),
            *(quote_only_violation, policy_violation, training_cutoff_excuse, refusal_then_answer),
        )
    },
}


@pytest.mark.parametrize("kind", sorted(DECIDABLE))
def test_a_kind_that_can_be_decided_stands_exactly_where_it_is_declared(kind: str) -> None:
    found = {str(case.key) for case in CASES if DECIDABLE[kind](case)}
    assert found == {str(case.key) for case in CASES if kind in planted(case)}


def test_every_kind_occurs_and_no_other() -> None:
    assert {kind for case in CASES for kind in planted(case)} == KINDS


def test_forty_questions_ten_of_each_domain_with_unique_ids() -> None:
    ids = [line["id"] for line in LINES]
    assert len(set(ids)) == len(ids) == 40
    assert Counter(line["tags"][0] for line in LINES) == dict.fromkeys(("dao", "courses", "earnings", "novels"), 10)
    assert all(line["id"].rsplit("-", 1)[0] == line["tags"][0] for line in LINES)
    assert len({case.key for case in CASES}) == len(CASES)
    for line in LINES:
        methods = [output["method"] for output in line["outputs"]]
        assert methods in (list(METHODS), list(METHODS[:2])), line["id"]
        assert set(line["meta"]["planted"]) <= set(methods), line["id"]


def test_a_field_that_is_not_in_the_contract_is_refused() -> None:
    with pytest.raises(ValidationError, match="colour"):
        list(_cases([{**LINES[0], "colour": "red"}]))


def test_the_four_failure_scenarios_and_the_worked_example_are_there() -> None:
    assert {
        line["meta"]["scenario"]: line["meta"]["planted"]["baseline"] for line in LINES if "scenario" in line["meta"]
    } == {
        "worked example": ["unsupported_claim", "wrong_number", "wrong_name"],
        "A: hallucination": ["unsupported_claim", "wrong_number"],
        "B: off topic": ["irrelevant_answer"],
        "C: retrieval failure": ["retrieval_miss", "irrelevant_context", "irrelevant_answer"],
        "D: partial correctness": ["incomplete_answer"],
    }


def test_a_chunk_is_the_same_passage_wherever_it_is_retrieved() -> None:
    seen: dict[str, dict[str, Any]] = {}
    for case in CASES:
        assert len({chunk.id for chunk in case.contexts}) == len(case.contexts), case.key
        assert [chunk.rank for chunk in case.contexts] == list(range(1, len(case.contexts) + 1)), case.key
        scores = [chunk.score for chunk in case.contexts if chunk.score is not None]
        assert len(scores) == len(case.contexts), case.key
        assert scores == sorted(scores, reverse=True), case.key
        assert len(case.contexts) in (0, 3, 4, 5), case.key
        for chunk in case.contexts:
            passage = chunk.model_dump(exclude={"rank", "score"})
            assert seen.setdefault(chunk.id, passage) == passage, chunk.id
            assert 40 <= len(chunk.text.split()) <= 120, chunk.id
    assert {passage["policy"] for passage in seen.values()} == {"summarize", "quote_only", "no_use"}


def test_the_forms_of_the_labels_agree_on_hit_or_miss() -> None:
    for case in CASES:
        answers = {form: bool(found) for form in FORMS if (found := matching(case, form=form)) is not None}
        assert len(set(answers.values())) <= 1, (case.key, answers)


def test_snippets_stand_in_a_chunk_under_their_heading() -> None:
    chunks = {chunk.id: chunk for case in CASES for chunk in case.contexts}
    anchors = [anchor for line in _samples() for anchor in line.anchors or []]
    anchors += [m for s in _samples() for g in s.required_support_groups or [] for m in g if isinstance(m, Anchor)]
    for anchor in anchors:
        assert any(anchor_matches(anchor, chunk, snippet=True) for chunk in chunks.values()), anchor


def test_labels_name_chunks_and_documents_that_exist() -> None:
    chunks = {chunk.id for case in CASES for chunk in case.contexts}
    docs = {chunk.doc_id for case in CASES for chunk in case.contexts}
    for sample in _samples():
        members = [m for group in sample.required_support_groups or [] for m in group if isinstance(m, str)]
        assert {*(sample.relevant_chunks or []), *(sample.gains or {}), *members} <= chunks, sample.id
        expected = sample.expected.citations if sample.expected else None
        assert {*(sample.relevant_docs or []), *(expected or [])} <= docs, sample.id
        if sample.gains:
            assert set(sample.gains) == set(sample.relevant_chunks or []), sample.id


def test_a_citation_repeats_the_marker_and_the_words_of_the_answer() -> None:
    for case in CASES:
        if case.output.citations is None or case.output.error:
            continue
        markers = re.findall(r"\[\d+\]", case.answer)
        assert [citation.marker for citation in case.output.citations] == markers, case.key
        bare = re.sub(r"\s*\[\d+\]", "", case.answer)
        assert all(citation.text and citation.text in bare for citation in case.output.citations), case.key


def test_figures_of_an_answer_stand_in_its_passages_unless_a_wrong_one_is_planted() -> None:
    pattern = re.compile(r"\d+(?:[.,]\d+)*")
    for case in CASES:
        known = set(pattern.findall(given(case)))
        answer = re.sub(r"\[\d+\]", "", case.answer)
        strange = set(pattern.findall(answer)) - known
        if "wrong_number" in planted(case):
            spoken = set(re.findall(r"\bseventeen\b", answer))
            assert (set(pattern.findall(answer)) | spoken) - set(pattern.findall(case.reference or "")), case.key
        elif not {"unsupported_claim", "training_cutoff_excuse"} & set(planted(case)):
            assert not strange, (case.key, strange)


def test_names_of_a_sound_answer_stand_in_its_passages() -> None:
    for case in CASES:
        if {"unsupported_claim", "training_cutoff_excuse"} & set(planted(case)) or "german" in case.sample.tags:
            continue
        names = set(re.findall(r"(?<=[a-zé,] )[A-Z][a-z]{2,}(?:-\d+)?", case.answer))
        assert not {name for name in names if name not in given(case)}, case.key


def test_no_sound_answer_uses_a_passage_that_must_not_be_used() -> None:
    for case in CASES:
        secret = [chunk.text.lower().split() for chunk in case.contexts if chunk.policy == "no_use"]
        runs = {" ".join(words[at : at + 4]) for words in secret for at in range(len(words) - 3)}
        used = any(run in case.answer.lower() for run in runs)
        assert used is ("quote_only_violation" in planted(case) and bool(secret)), case.key


def test_a_wrong_figure_or_name_is_also_an_unsupported_claim() -> None:
    for case in CASES:
        if {"wrong_number", "wrong_name"} & set(planted(case)):
            assert "unsupported_claim" in planted(case), case.key


def test_a_refusal_where_an_answer_was_due_is_declared() -> None:
    for case in CASES:
        if expects(case, "answer") and case.output.abstained:
            assert "false_rejection" in planted(case), case.key
        if "false_rejection" in planted(case):
            assert expects(case, "answer"), case.key
            assert case.output.abstained is not False, case.key


def test_every_group_of_support_is_met_or_the_answer_is_declared_wanting() -> None:
    wanting = {"incomplete_answer", "retrieval_miss", "false_rejection"}
    for case in CASES:
        groups = case.sample.required_support_groups or []
        met = [any(_met(member, chunk) for member in group for chunk in case.contexts) for group in groups]
        assert all(met) or wanting & set(planted(case)), case.key


def test_the_special_cases_are_there() -> None:
    tags = Counter(tag for line in LINES for tag in line["tags"])
    assert (tags["multi-turn"], tags["graded"], tags["injection"], tags["special-characters"]) == (4, 2, 1, 1)
    assert tags["spanish"] == tags["german"] == 1
    assert {line["recency_conflict_rule"] for line in LINES if "recency_conflict_rule" in line} == {
        "cite_newer", "cite_both", "acknowledge_both",
    }  # fmt: skip
    assert all(bool(line.get("history")) == ("multi-turn" in line["tags"]) for line in LINES)
    assert any(not case.contexts and case.answer and not case.output.error for case in CASES)
    forged = next(case for case in CASES if "injection" in case.sample.tags and case.output.method == "baseline")
    assert '{"verdict": "supported"' in forged.answer
    assert "</answer>" in forged.answer
    markup = next(case for case in CASES if "special-characters" in case.sample.tags)
    assert all(mark in markup.answer for mark in ("=1+1", "<b>", "[red]"))
    assert markup.answer.startswith("=1+1")


def test_rerank_is_better_than_the_baseline_but_not_perfect() -> None:
    failing = Counter(case.output.method for case in CASES if set(planted(case)) - {"refusal_then_answer"})
    total = Counter(case.output.method for case in CASES)
    assert 0 < failing["rerank"] / total["rerank"] <= 0.2
    assert failing["baseline"] / total["baseline"] >= 0.5
    assert failing["baseline"] < total["baseline"]


def test_the_readme_counts_what_is_there() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE
    )
    there = Counter((kind, case.output.method) for case in CASES for kind in planted(case))
    assert {row[0]: [int(n) for n in row[1:]] for row in rows} == {k: [there[k, m] for m in METHODS] for k in KINDS}


def test_timings_and_usage_are_there_for_all_but_the_broken_output() -> None:
    for case in CASES:
        output = case.output
        assert {"retrieval", "generation"} <= set(output.timings), case.key
        assert all(value > 0 for value in output.timings.values()), case.key
        assert ("folder_selection" in output.timings) is (output.folder_mode in ("on", "on_with_fallback")), case.key
        assert bool(output.usage) is (output.error is None), case.key


def _samples() -> list[Sample]:
    return [Sample.model_validate({key: value for key, value in line.items() if key != "outputs"}) for line in LINES]


def _met(member: str | Anchor, chunk: Chunk) -> bool:
    if isinstance(member, str):
        return member in (chunk.id, chunk.doc_id)
    return anchor_matches(member, chunk, snippet=True)
