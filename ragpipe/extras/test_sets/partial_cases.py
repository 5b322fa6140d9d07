"""Cases that the documents answer in part: fewer items, fewer periods or fewer entities than the question asks for."""

from __future__ import annotations

from collections.abc import Iterator

from ragpipe.core.digest import sha256
from ragpipe.extras.test_sets.anchors import anchor
from ragpipe.extras.test_sets.document_facts import PeriodSeries, SectionList, item_lists, period_series
from ragpipe.extras.test_sets.drafts import Draft, drafts_of
from ragpipe.extras.test_sets.english import enumerated, in_words
from ragpipe.extras.test_sets.fact_slots import is_narrow, list_noun, named_facts, series_noun, subject_slots
from ragpipe.extras.test_sets.meaningful_words import meaning_words
from ragpipe.extras.test_sets.periods import Period
from ragpipe.extras.test_sets.question_templates import Templates
from ragpipe.extras.test_sets.source_documents import SourceDocuments, full_text, last_heading

_MORE_ITEMS = (2, 5)
_MORE_PERIODS = (1, 2, 3)
"""How many more than there are a question asks for."""
_OTHERS = 3  # invented names that are put beside one fact


def partial_list_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions for more items than a list has; `expected.context_has` is how many it has."""
    for document in documents.plain:
        subject = subject_slots(documents.subject(document))
        for items in item_lists(document):
            heading = last_heading(items.section)
            if not heading or heading.casefold() == document.title.casefold():
                continue
            noun = list_noun(heading)
            for more in _MORE_ITEMS:
                slots = {
                    **({"noun": noun} if noun else {"heading": heading}),
                    **(
                        {"only_noun": noun} if noun and is_narrow(noun) and documents.is_only(heading, document) else {}
                    ),
                    "asked": in_words(len(items.items) + more),
                    "known": in_words(len(items.items)),
                    "items": "\n".join(f"- {item}" for item in items.items),
                    **subject,
                }
                topic = f"{document.rel_path}#{items.section.heading_path}"
                labels = _list_labels(items)
                spread = (topic, document.rel_path, str(more))
                yield from drafts_of(
                    templates,
                    "partial_list",
                    "list",
                    slots,
                    spread,
                    fact=topic,
                    labels=labels,
                    values=items.items,
                    documents=(document.rel_path,),
                )


def partial_date_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions for a range of periods that goes on beyond the last one of a series."""
    for document in documents.plain:
        for series in period_series(document):
            noun = series_noun(last_heading(series.section))
            for start in range(len(series.rows)):
                for more in _MORE_PERIODS:
                    if noun and _are_unknown(documents, series, noun, more):
                        yield from _range_drafts(documents, templates, series, noun, start, more)


def partial_entity_drafts(documents: SourceDocuments, templates: Templates) -> Iterator[Draft]:
    """Questions about two subjects, of which the second is an invented name that is in no document."""
    others = [name for name in templates.names("partial_entities") if documents.is_absent(name)]
    for named in named_facts(documents, documents.facts):
        if not named.subject.is_name or named.about != "fact":
            continue
        path = named.fact.document.rel_path
        for other in sorted(others, key=lambda name: sha256([named.topic, name]))[:_OTHERS]:
            yield from drafts_of(
                templates,
                "partial_entities",
                "fact",
                {**named.slots, "other": other},
                (path, other, named.topic),
                fact=named.topic,
                labels={
                    "anchors": [anchor(named.fact.document, named.fact.section, named.fact.value)],
                    "relevant_docs": [path],
                    "answerable": True,
                    "expected": {"behavior": "answer"},
                },
                values=(named.value,),
                documents=(path,),
            )


def _list_labels(items: SectionList) -> dict[str, object]:
    return {
        "anchors": [anchor(items.document, items.section, *items.items)],
        "relevant_docs": [items.document.rel_path],
        "answerable": True,
        "expected": {"behavior": "answer", "context_has": len(items.items)},
    }


def _are_unknown(documents: SourceDocuments, series: PeriodSeries, noun: str, more: int) -> bool:
    """Whether no document that could be about the same figures names one of the periods after the last."""
    later = [str(series.rows[-1][0].later(step)) for step in range(1, more + 1)]
    about = [document for document in documents.all if meaning_words(noun) <= documents.words[document.rel_path]]
    return not any(period in full_text(document) for document in (*about, series.document) for period in later)


def _range_drafts(
    documents: SourceDocuments, templates: Templates, series: PeriodSeries, noun: str, start: int, more: int
) -> Iterator[Draft]:
    """Drafts for the periods of a series from number `start` to `more` after the last.

    Args:
        documents: all documents.
        templates: all templates.
        series: the series.
        noun: what its figures are.
        start: the place of the first period that is asked for.
        more: how many periods after the last one are asked for.
    """
    document, rows = series.document, series.rows[start:]
    last = rows[-1][0]
    missing = [str(last.later(step)) for step in range(1, more + 1)]
    slots = {
        "first": str(rows[0][0]),
        "last": missing[-1],
        "periods": _unit_words(last),
        "missing": enumerated(missing),
        "rows": "\n".join(f"- {period}: {figure}" for period, figure in rows),
        "noun": noun,
        **subject_slots(documents.subject(document)),
    }
    topic = f"{document.rel_path}#{series.section.heading_path}"
    yield from drafts_of(
        templates,
        "partial_dates",
        "series",
        slots,
        (topic, str(start), str(more)),
        fact=topic,
        labels={
            "anchors": [anchor(document, series.section, *(figure for _, figure in rows))],
            "relevant_docs": [document.rel_path],
            "answerable": True,
            "expected": {"behavior": "answer"},
        },
        values=tuple(figure for _, figure in rows),
        documents=(document.rel_path,),
    )


def _unit_words(period: Period) -> str:
    return {"half": "half-years"}.get(period.unit, f"{period.unit}s")
