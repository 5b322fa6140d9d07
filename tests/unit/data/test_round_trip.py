"""Whatever a sample or an output holds, written as native JSONL it reads back equal."""

import json
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.sample import Anchor, Chunk, Citation, Expected, Output, Sample, Turn
from ragpipe.data.dataset import open_dataset
from ragpipe.data.settings import DatasetSettings

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
names = texts.filter(
    lambda text: any(unicodedata.category(sign)[0] in "LNPS" and sign not in "\u115f\u1160\u2800\u3164\uffa0" for sign in text)
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)


def maybe(values):
    return st.none() | values


def some(values):
    return st.lists(values, max_size=2)


verdicts = st.none() | st.booleans() | numbers | st.integers(-9, 9) | st.builds(dict, unreadable=texts)
recorded = verdicts | some(verdicts) | st.dictionaries(texts, verdicts, max_size=2)
anchors = st.builds(Anchor, rel_path=texts, heading_path=maybe(texts), snippets=some(texts), role=st.sampled_from([None, "newer", "older"]))
samples = st.builds(
    Sample, id=names, question=names, history=some(st.builds(Turn, role=st.sampled_from(["user", "assistant"]), text=texts)),
    references=some(texts), relevant_docs=maybe(some(texts)), relevant_chunks=maybe(some(texts)),
    gains=maybe(st.dictionaries(texts, numbers, max_size=2)), anchors=maybe(some(anchors)),
    required_support_groups=maybe(some(some(texts | anchors))),
    recency_conflict_rule=st.sampled_from([None, "cite_newer", "cite_both", "acknowledge_both"]),
    answerable=maybe(st.booleans()),
    expected=maybe(st.builds(Expected, behavior=st.sampled_from([None, "answer", "reject"]), citations=maybe(some(texts)))),
    category=maybe(texts), tags=some(texts), meta=st.dictionaries(texts, plain, max_size=2),
)  # fmt: skip
chunks = st.builds(
    Chunk, id=texts, doc_id=maybe(texts), rank=st.integers(1, 9), score=maybe(numbers), text=texts, heading_path=maybe(texts)
)
outputs = st.builds(
    Output,
    sample_id=st.just("replaced"),
    method=names,
    repeat=st.integers(1, 3),
    answer=texts,
    chunks=some(chunks).map(lambda found: sorted(found, key=lambda chunk: chunk.rank)),
    citations=maybe(some(st.builds(Citation, marker=maybe(texts), chunk_id=maybe(texts), text=maybe(texts)))),
    abstained=maybe(st.booleans()),
    folder_mode=st.sampled_from([None, "off", "on_with_fallback"]),
    timings=st.dictionaries(texts, numbers, max_size=2),
    recorded=st.dictionaries(texts, recorded, max_size=2),
    error=maybe(texts),
).flatmap(lambda output: st.sampled_from([True, bool(output.chunks)]).map(  # false only where there are no chunks
    lambda retrieves: output.model_copy(update={"retrieves": retrieves})
))  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("round")


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(samples, st.lists(outputs, max_size=2, unique_by=lambda o: (o.method, o.repeat))), min_size=1, max_size=2,
             unique_by=lambda pair: pair[0].id),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_written_and_read_back(folder, data, nested, escaped):
    lines, expected = [], []
    for sample, answers in data:
        head = sample.model_dump(mode="json")
        given = [output.model_dump(mode="json", exclude={"sample_id"}) for output in answers]
        if nested:
            lines.append({**head, "outputs": given})
        else:
            lines += [{**head, **output} for output in given] or [head]
        pairs = [(sample, output.model_copy(update={"sample_id": sample.id})) for output in answers]
        expected += pairs or [(sample, None)]
    text = "".join(json.dumps(line, ensure_ascii=escaped) + "\n" for line in lines)
    (folder / "data.jsonl").write_bytes(text.encode("utf-8"))
    found = list(open_dataset(DatasetSettings(path="data.jsonl"), folder))
    assert [(record.sample, record.output) for record in found] == expected


@given(st.binary(max_size=200), st.sampled_from(["jsonl", "json", "csv", "parquet", "trec"]))
def test_arbitrary_bytes_end_in_records_or_one_data_error(folder, raw, form):
    (folder / "bytes").write_bytes(raw)
    fields = {"id": "query", "question": "query"} if form == "trec" else {}
    problems: tuple[Problem, ...] = (Problem("bytes", "", "", ""),)
    try:
        list(open_dataset(DatasetSettings(path="bytes", format=form, fields=fields), folder))
    except DataError as error:
        problems = error.problems
    assert problems
    assert all(problem.where.startswith("bytes") for problem in problems)
