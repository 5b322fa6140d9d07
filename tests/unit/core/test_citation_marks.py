"""What is a citation mark, what it names, and that its number is no number of the text."""

import re

import pytest

from ragpipe.core.citation_marks import find_marks, marks_before_stops, without_marks
from ragpipe.metrics.shared.citations import citations_of
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


@pytest.mark.parametrize(("answer", "expected"), [
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
])  # fmt: skip
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


# what people and models write for sources 1 and 2 (and ranges); empty numbers: a mark that names no chunk
WRITTEN = [
    ('[1]', '[2]', [(1,), (2,)]), ('[1:0]', '[2:1]', [(1,), (2,)]), ('{1}', '{2}', [(1,), (2,)]), ('{{1}}', '{{2}}', [(1,), (2,)]),
    ('[^1]', '[^2]', [(1,), (2,)]), ('[1, 3-5]', '[2]', [(1, 3, 4, 5), (2,)]), ('⁽¹⁾', '⁽²⁾', [(1,), (2,)]), ('⁽¹⁻³⁾', '⁽²⁾', [(1, 2, 3), (2,)]),
    ('[1,2]', '[3]', [(1, 2), (3,)]), ('[1][2]', '[3]', [(1,), (2,), (3,)]), ('[1]–[3]', '[2]', [(1,), (3,), (2,)]),
    ('[1-3]', '[2]', [(1, 2, 3), (2,)]), ('[1; 2]', '[3]', [(1, 2), (3,)]), ('(1, 2)', '(3)', [(1, 2), (3,)]), ('[ref1]', '[ref2]', [(1,), (2,)]),
    ('[ref:1]', '[ref:2]', [(1,), (2,)]), ('[cite:1]', '[cite:2]', [(1,), (2,)]), ('[cite: 1, 2]', '[cite: 3]', [(1, 2), (3,)]),
    ('<sup>1</sup>', '<sup>2</sup>', [(1,), (2,)]), ('<sup>[1]</sup>', '<sup>[2]</sup>', [(1,), (2,)]), ('[[1]]', '[[2]]', [(1,), (2,)]),
    ('[[1]](#s1)', '[[2]](#s2)', [(1,), (2,)]), ('[1](https://a.b/c)', '[2](https://a.b/d)', [(1,), (2,)]), ('[Doc1]', '[Doc2]', [(1,), (2,)]),
    ('[doc_1]', '[doc_2]', [(1,), (2,)]), ('[source_1]', '[source_2]', [(1,), (2,)]), ('[Source: 1]', '[Source: 2]', [(1,), (2,)]),
    ('[S1]', '[S2]', [(1,), (2,)]), ('[D1]', '[D2]', [(1,), (2,)]), ('[C1]', '[C2]', [(1,), (2,)]), ('[K1]', '[K2]', [(), ()]),
    ('(Doc. 1)', '(Doc. 2)', [(1,), (2,)]), ('(Document 1, Document 2)', '(Document 3)', [(1, 2), (3,)]),
    ('[Document 1, p. 3]', '[Document 2, p. 4]', [(1,), (2,)]), ('[1, p. 3]', '[2, p. 5]', [(1,), (2,)]), ('[1, pp. 3-5]', '[2]', [(1,), (2,)]),
    ('[1†L10-L20]', '[2†L1-L2]', [(1,), (2,)]), ('【1†L10-L20】', '【2†L1】', [(1,), (2,)]), ('【3:1†report.pdf】', '【3:2†a.pdf】', [(), (3,)]),
    ('[1]:', '[2]', [(1,), (2,)]), ("†1", "†2", [(), ()]), ('*[1]*', '*[2]*', [(1,), (2,)]), ('**[1]**', '**[2]**', [(1,), (2,)]),
    ('`[1]`', '`[2]`', [(1,), (2,)]), ('\\[1\\]', '\\[2\\]', [(1,), (2,)]), ('\\cite{1}', '\\cite{2}', [(1,), (2,)]), ('[@1]', '[@2]', [(1,), (2,)]),
    ('[@doe99]', '[@roe00]', [(), ()]), ('[#1]', '[#2]', [(1,), (2,)]), ('¹', '²', [(1,), (2,)]), ('¹,²', '³', [(1, 2), (3,)]),
    ('¹⁻³', '²', [(1, 2, 3), (2,)]), ('①', '②', [(1,), (2,)]), ('❶', '❷', [(1,), (2,)]), ('(①)', '(②)', [(1,), (2,)]), ('[①]', '[②]', [(1,), (2,)]),
    ('<1>', '<2>', [(1,), (2,)]), ('<<1>>', '<<2>>', [(1,), (2,)]), ('<cite>1</cite>', '<cite>2</cite>', [(1,), (2,)]),
    ('<ref>1</ref>', '<ref>2</ref>', [(1,), (2,)]), ('<ref name="1"/>', '<ref name="2"/>', [(1,), (2,)]),
    ('<cit id="1"/>', '<cit id="2"/>', [(1,), (2,)]), ('<citation index="1"/>', '<citation index="2"/>', [(1,), (2,)]),
    ('[Chunk 1]', '[Chunk 2]', [(1,), (2,)]), ('[chunk-1]', '[chunk-2]', [(1,), (2,)]), ('[context 1]', '[context 2]', [(1,), (2,)]),
    ('[Context #1]', '[Context #2]', [(1,), (2,)]), ('(see [1])', '(see [2])', [(1,), (2,)]), ('(cf. 1)', '(cf. 2)', [(1,), (2,)]),
    ('[Quelle 1]', '[Quelle 2]', [(1,), (2,)]), ('[Fuente: 1]', '[Fuente: 2]', [(1,), (2,)]), ('［１］', '［２］', [(1,), (2,)]),
    ('（来源：1）', '（来源：2）', [(1,), (2,)]), ('[文档1]', '[文档2]', [(1,), (2,)]), ('[来源 1、2]', '[来源 3]', [(1, 2), (3,)]), ('〔1〕', '〔2〕', [(1,), (2,)]),
    ('〖1〗', '〖2〗', [(1,), (2,)]), ('⟦1⟧', '⟦2⟧', [(1,), (2,)]), ('[१]', '[२]', [(1,), (2,)]), ('[١، ٢]', '[٣]', [(1, 2), (3,)]),
    ('[1 et 2]', '[3]', [(1, 2), (3,)]), ('[1 und 2]', '[3]', [(1, 2), (3,)]), ('[1, 2 and 3]', '[4]', [(1, 2, 3), (4,)]),
    ('[1..3]', '[2]', [(1, 2, 3), (2,)]), ('[1 to 3]', '[2]', [(1, 2, 3), (2,)]), ('[1-2, 4]', '[3]', [(1, 2, 4), (3,)]),
    ('[citation:1]', '[citation:2]', [(1,), (2,)]), ('[citation:1][citation:2]', '[citation:3]', [(1,), (2,), (3,)]),
    ('[webpage 1]', '[webpage 2]', [(1,), (2,)]), ('[web:1]', '[web:2]', [(1,), (2,)]), ('[page 1]', '[page 2]', [(), ()]),
    ('[Result 1]', '[Result 2]', [(1,), (2,)]), ('[1a]', '[2b]', [(), ()]), ('[i1]', '[i2]', [(), ()]), ('[T1]', '[T2]', [(), ()]),
    ('[id=1]', '[id=2]', [(1,), (2,)]), ('[ID: 1]', '[ID: 2]', [(1,), (2,)]), ('[index 1]', '[index 2]', [(1,), (2,)]),
    ('[note 1]', '[note 2]', [(), ()]), ('[Data: Sources (1, 2)]', '[Data: Sources (3)]', [(), ()]),
    ('[Data: Reports (2, 7, +more)]', '[Data: Entities (5)]', [(), ()]), ('[SOURCE-1]', '[SOURCE-2]', [(1,), (2,)]), ('[^1^]', '[^2^]', [(1,), (2,)]),
    ('[[citation:1]]', '[[citation:2]]', [(1,), (2,)]), ('<|cite_1|>', '<|cite_2|>', [(1,), (2,)]),
    ('citeturn0search1', 'citeturn0search2', [(), ()]), ('(1)', '(2)', [(1,), (2,)]), ('(1)(2)', '(3)', [(1,), (2,), (3,)]),
]  # fmt: skip
NO_MARKS = [
    "The area is 20 m² and 3 km².", "It has 10^6 cells.", "The regex is \\d{5} or x{2}.", "In LaTeX x_{1}^{2} = 4.", "The call f(1) and g(2) work.",
    "It was founded in Berlin (1990).", "Open at [nine] daily.", "See <h1> and <b>bold</b>.", "If a <5 and b >3 then.", "清单：①身份证 ②照片 ③现金",
    '{"a": 1, "b": 2}', "She scored 3 (of 5).", "Use version (ver 2) of it.", "The ratio is 1:2 here.", "The #1 hit is ours.", "§ 3 applies to all.",
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "numbers"), WRITTEN)
def test_marks_of_all_forms(first, second, numbers):
    text = f"The fee is 45 euros {first}. The card is valid for two years {second}."
    assert [mark.numbers for mark in find_marks(text)] == numbers
    assert not set(re.findall(r"\d+", without_marks(text))) - {"45"}


@pytest.mark.parametrize("text", NO_MARKS)
def test_no_marks(text):
    assert find_marks(text) == []
