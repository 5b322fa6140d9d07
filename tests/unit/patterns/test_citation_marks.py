"""What is a citation mark, what it names, and that its number is no number of the text."""

from __future__ import annotations

import pytest

from ragpipe.metrics.shared.citation_parsing import citations_of
from ragpipe.patterns.citation_marks import find_marks, marks_before_stops, without_marks
from ragpipe.testing.scripted import make_case, score_of, shipped_metric
from tests.support.growth import assert_linear

A, B = "Cats sleep sixteen hours a day", "Dogs bark at strangers"
CHUNKS = [{"id": f"c{i}", "text": f"{text}."} for i, text in enumerate((A, B, "Birds fly south in winter"), 1)]
# As they are written by language models, by frameworks (LangChain, LlamaIndex, OpenAI file search, Bing, Cohere), and by people.
FORMS = [
    "[{}]", "【{}】", "【{}†source】", "【{}†L1-L4】", "［{}］", "〔{}〕", "[doc:{}]", "[Doc {}]", "[Source {}]", "(Source {})", "(source: {})",
    "[{}](https://a.org/b)", r"\[{}\]", "[^{}]", "[^{}^]", "[[{}]]", "[[{}]](https://a.org)", "[#{}]", "[ref{}]", "[S{}]", "[{}†]",
    "<cite>{}</cite>", "<sup>{}</sup>", "<sup>[{}]</sup>", '<source id="{}"/>', "[Document #{}]", "[doc_{}]", "[citation:{}]", "[Passage {}]",
    "(see source {})", "(doc {})", "[context {}]", "(Quelle {})", "[Fuente {}]", "[来源{}]", "（来源{}）", "[出典{}]", "[출처 {}]", "[المصدر {}]",
    "*[{}]*", "**[{}]**", "[c{}]",
]  # fmt: skip
PLACES = ["{a} {m}. {b} {n}.", "{a}{m}. {b}{n}.", "{a}. {m} {b}. {n}", "{m} {a}. {n} {b}.", "- {a} {m}\n- {b} {n}"]


def cited(answer, **more):
    found = citations_of(make_case(answer, chunks=CHUNKS, **more), markers=True)
    return [(one.chunk.id if one.chunk else None, one.text.rstrip(".")) for one in found]


@pytest.mark.parametrize("form", FORMS)
def test_a_mark_cites_its_sentence_wherever_it_stands(form):
    for place in PLACES:
        answer = place.format(a=A, b=B, m=form.format(1), n=form.format(2))
        assert cited(answer) == [("c1", A), ("c2", B)], answer
        assert not any(sign.isdecimal() for sign in without_marks(answer)), answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"{A}.¹ {B}.²", [("c1", A), ("c2", B)]),
        (f"{A}.^1 {B}.^2", [("c1", A), ("c2", B)]),
        (f"{A}¹². {B}².", [("c1", A), ("c2", A), ("c2", B)]),
        (f"{A} (1). {B} (2).", [("c1", A), ("c2", B)]),
        (f"{A}. (1) {B}. (2)", [("c1", A), ("c2", B)]),
        (f"(1) {A}. (2) {B}.", []),
        (f"{A} [1]. {B} (2) or not.", [("c1", A)]),
        (f"{A} [0]. {B} [1].", [("c1", A), ("c2", B)]),
        (f"{A} [0]. {B} [3].", [(None, A), ("c3", B)]),
        (f"{A} [1 and 2].", [("c1", A), ("c2", A)]),
        (f"{A} [1, 2].", [("c1", A), ("c2", A)]),
        (f"{A} [1-3].", [("c1", A), ("c2", A), ("c3", A)]),
        (f"{A} [1][2].", [("c1", A), ("c2", A)]),
        (f"{A} (Source 1, Source 2).", [("c1", A), ("c2", A)]),
        (f"{A} [doc:1, doc:2].", [("c1", A), ("c2", A)]),
        (f"{A} [c2, c1].", [("c2", A), ("c1", A)]),
        (f"{A} [١]. {B} [٢].", [("c1", A), ("c2", B)]),
        (f"{A} 【1:0†source】. {B} 【2:1†source】.", [("c1", A), ("c2", B)]),
        (f"{A}.\n[1]\n{B}.\n[2]", [("c1", A), ("c2", B)]),
        (f"{A} [1]. {B} [2].\n\nSources:\n[1] Cats, page 1\n[2] Dogs, page 2", [("c1", A), ("c2", B)]),
        (f"{A}[^1]. {B}[^2].\n\n[^1]: Cats\n[^2]: Dogs", [("c1", A), ("c2", B)]),
        (f"{A} [7].", [(None, A)]),
        ("猫每天睡十六个小时。【1】狗会叫。【2】", [("c1", "猫每天睡十六个小时。"), ("c2", "狗会叫。")]),
        ("猫每天睡十六个小时[1]。狗会叫¹。", [("c1", "猫每天睡十六个小时。"), ("c1", "狗会叫。")]),
        ("The room has 20 m² and 30 km².", []),
    ],
)
def test_what_marks_name(answer, expected):
    assert cited(answer) == expected


@pytest.mark.parametrize("answer", [f"{A} [Smith 2020].", f"{A} (Smith et al., 2020).", f"{A}【source】.", f"{A} [page](https://a.org/b).",
                                    f"{A} 【4:1†source】."])  # fmt: skip
def test_marks_that_name_no_chunk_are_skipped_as_recorded_ones_are(answer):
    found = score_of(shipped_metric("citation", markers=True), make_case(answer, chunks=CHUNKS))["citation"]
    assert (found.status, found.reason) == ("skipped", "citations_name_no_chunk")


@pytest.mark.parametrize(("markers", "chunks"), [(["[c2]"], ["c2"]), (["[0]", "[1]"], ["c1", "c2"]), (["¹"], ["c1"]), (["Source 3"], ["c3"]),
                                                 (["【2】"], ["c2"])])  # fmt: skip
def test_recorded_markers_are_read_the_same_way(markers, chunks):
    case = make_case(f"{A}.", chunks=CHUNKS, citations=[{"marker": marker} for marker in markers])
    assert [one.named for one in citations_of(case, markers=False)] == chunks


def test_marks_behind_a_stop_go_before_it():
    assert marks_before_stops("It rained. [1] It snowed.²") == "It rained [1]. It snowed²."


@pytest.mark.parametrize("unit", ["[1] ", "(", "[1, ", "【", "a (1) ", "<cite>", "¹", "[", "Sources:\n", "source 1 and "])
def test_marks_are_found_in_time_that_grows_with_the_text(unit):
    assert_linear(lambda size: find_marks(unit * size), 10_000)
