"""What must hold for every case of a synthesized set, checked against the documents alone."""

import re

from markdown_it import MarkdownIt

from ragpipe.core.sample import Chunk, Sample
from ragpipe.core.text import normalise
from ragpipe.extras.test_sets.english import word_set
from ragpipe.metrics.shared.ranking import matches_anchor

_FUNCTION_WORDS = word_set(
    "a about am an and are as at by can cost did do does for from give go goes has have how i in into is it looking many me much money "
    "of on per since start tell that the there this to was what when where which who whom with year you ask charge purpose long existed"
)


def chunks(documents):
    """Each section with text as a retrieved chunk."""
    return [
        Chunk(id=f"{document.rel_path}#{section.line}", rank=1, rel_path=document.rel_path, heading_path=section.heading_path or None,
              text=section.text)
        for document in documents for section in document.sections if section.text
    ]  # fmt: skip


def list_lengths(text):
    """The number of items of each outermost list of a Markdown text, by the parser."""
    lengths: list[int] = []
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("bullet_list_open", "ordered_list_open") and token.level == 0:
            lengths.append(0)
        elif token.type == "list_item_open" and token.level == 1:
            lengths[-1] += 1
    return lengths


def faults(case, documents):
    """What is wrong with a case; empty for one that fits its documents."""
    sample = Sample.model_validate({key: value for key, value in case.items()})
    texts = {document.rel_path: normalise("\n".join(section.text for section in document.sections)) for document in documents}
    wrong = []
    written = [section.text for document in documents for section in document.sections]
    odd = [match[0] for match in re.finditer(r"\b(\w+) \1\b|  |[{}]", sample.question)]
    if any(not any(part in text for text in written) for part in odd):
        wrong.append(f"the question reads badly: {sample.question}")
    sources = [texts[path] for path in sample.meta["origin"]["documents"]]
    for value in sample.meta.get("values", ()):
        if not any(normalise(value) in text for text in sources):
            wrong.append(f"{value!r} is in none of its documents")
        if not all(normalise(value) in normalise(reference) for reference in sample.references):
            wrong.append(f"{value!r} is not in the reference")
    for place in sample.anchors or ():
        wrong += _anchor_faults(place, documents)
    if sample.expected and sample.expected.context_has is not None:
        anchor = (sample.anchors or [])[0]
        section = next(c for c in chunks(documents) if c.rel_path == anchor.rel_path and c.heading_path == anchor.heading_path)
        if list_lengths(section.text) != [sample.expected.context_has]:
            wrong.append(f"{list_lengths(section.text)} items, not {sample.expected.context_has}")
    if case["question_type"] == "no_context":
        words = set(re.findall(r"\w+", sample.question.lower())) - _FUNCTION_WORDS
        full = {d.rel_path: " ".join([d.title, *(f"{s.heading_path} {s.text}" for s in d.sections)]).lower() for d in documents}
        wrong += [f"{path} has all words of {sample.question!r}" for path, text in full.items() if all(w in text for w in words)]
    return wrong


def _anchor_faults(place, documents):
    hits = [chunk for chunk in chunks(documents) if matches_anchor(chunk, place, require_snippet=True)]
    missing = [
        snippet for snippet in place.snippets
        if not any(matches_anchor(chunk, place.model_copy(update={"snippets": [snippet]}), require_snippet=True) for chunk in hits)
    ]  # fmt: skip
    return [f"the anchor {place} matches no section"] if not hits else [f"{snippet!r} is not at {place}" for snippet in missing]
