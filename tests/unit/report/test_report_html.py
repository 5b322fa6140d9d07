"""report.html: text is never an element, cases in their order, details of any metric, words beside the figures."""

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragpipe.core.score import ScoreSpec
from ragpipe.core.text import printable
from ragpipe.core.usage import Price
from ragpipe.report import case_views as views
from ragpipe.report.console import Console
from ragpipe.report.model import Chart, Report
from ragpipe.report.report_data import lowest_cases
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.run_report import build_report, read_report_data
from ragpipe.runs.write_reports import write_reports
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.table_rows import SCORES
from tests.support.page_blocks import block_json
from tests.support.reports import markdown_of
from tests.support.run_tables import Chunk, Row, score, spent, write_run

pytestmark = pytest.mark.slow
SPECS = [ScoreSpec("faithfulness"), ScoreSpec("correctness", 1, 5), ScoreSpec("n_claims", None, None)]
CALL = {
    "method": "a", "iteration": 1, "metric": "faithfulness", "step": "verify", "turn": "ask", "judge": "gpt", "status": "ok",
    "template": "faithfulness/verify", "template_version": "v1", "key": "k1", "tokens_in": 812, "tokens_out": 93, "attempts": 1,
}  # fmt: skip
GATE = ScoringSettings.model_validate({"gates": {"plain": {"score": "faithfulness", "min": 0.9}}})
CLAIMS = {"claims": [
    {"claim": "It opened in 1901.", "supported": True, "evidence": "opened  in\n1901", "reason": "said so"},
    {"claim": "It was  red.", "supported": False, "evidence": "It was blue", "reason": "another colour"},
]}  # fmt: skip


def write(root: Path, text: str = "plain", details: Any = None, cases: int = 3, **more: Any) -> Path:
    """A run in which every text that a data set, a system or a judge gives is `text`."""
    labels = {"question": text, "category": text, "tags": [text], "references": [text], "history": [{"role": "user", "text": text}]}  # fmt: skip
    output = {"answer": text, "chunks": [Chunk(id=text, rank=1, text=text, rel_path=text)]}
    rows = [
        Row(f"{text}{i}", text, {"faithfulness": 0.3 * i / max(1, cases // 3), "correctness": ("error", text), "n_claims": ("skipped", text)}, labels, output)
        for i in range(cases)
    ]  # fmt: skip
    messages = json.dumps([{"role": text, "content": text}])
    call = {**CALL, "sample_id": f"{text}0", "method": text, "step": text, "messages": messages, "reply": text, "flags": [text]}
    folder = write_run(root, rows, [call])
    table = pq.read_table(folder / "scores.parquet")
    quote = {"quote": text, "places": [{"chunk": text, "rank": text, "start": text, "end": text}]}
    claim = {"claim": text, "verdict": "contradicted", "evidence": [quote]}
    shown = {text: [{text: text}], "claims": [claim], "flags": [text], "why": text}
    found = json.dumps(details if details is not None else shown)
    column = [found if name == "faithfulness" else None for name in table["score_name"].to_pylist()]
    place = SCORES.get_field_index("details")
    pq.write_table(table.set_column(place, SCORES.field("details"), pa.array(column)), folder / "scores.parquet")
    gates = {text: {"score": "faithfulness", "min": 0.9}}
    settings = ScoringSettings.model_validate({"gates": gates})
    score(root, SPECS, settings, signature=f"x | {text}", rates={text: Price(text, text, reason=text)})
    return root


def page(root: Path, **settings: Any) -> str:
    report = ReportSettings(formats=["html"], **settings)
    write_reports(root / "iteration-1", target=root, settings=report, console=Console())
    return (root / "report.html").read_text(encoding="utf-8")


def only_case(root: Path) -> views.CaseView:
    run = RunFolder(root)
    (case,) = views.case_views(run, run.iteration(1), ["faithfulness"])
    return case


class Elements(HTMLParser):
    """Every tag with its attributes in order; texts of style and script apart, data blocks left out, all others joined."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"style": [], "script": []}
        self.texts: list[str] = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = "block" if dict(attrs).get("type") == "text/plain" else tag if tag in self.inside else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "block":
            return
        (self.inside[self._open] if self._open else self.texts).append(data)


ATTACKS = [
    "</script><script>window.pwned=1</script>", "<svg onload=alert(1)><img src=x onerror=alert(1)>", '" onmouseover="alert(1)" x=\'',
    "' autofocus onfocus=alert(1) '", "</style><style>@import 'http://evil'</style>", "{{ 7*7 }} {% include '/etc/passwd' %} ${1}",
    "![x](http://evil/x.png) [a](javascript:alert(1))", "--><!-- <base href=//evil>", "\x1b[2J\x07\u202etxt.exe\u2028\x85",
    "</textarea></details></main></body>",
]  # fmt: skip


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize("attack", ATTACKS)
def test_text_of_data_never_becomes_an_element(tmp_path: Path, attack: str) -> None:
    """The page of hostile texts has the very elements and attributes of the page of harmless ones, but for the choice `suspicious`."""
    plain = Elements(page(write(tmp_path / "plain")))
    html = page(write(tmp_path / "evil", attack))
    evil = Elements(html)
    made = [(tag, list(attrs)) for tag, attrs in evil.tags if (tag, attrs.get("value")) != ("option", "suspicious")]
    assert (made, evil.inside) == ([(tag, list(attrs)) for tag, attrs in plain.tags], plain.inside)
    assert "".join(evil.texts).count(printable(attack)[:12]) > 10
    assert not set("\x1b\x07\u202e\u2028\x85") & set("".join(evil.texts))
    values = {name for _, attrs in evil.tags for name, value in attrs.items() if value and attack[:8] in value}
    assert values <= {"value", "aria-label"}
    (case, *_) = block_json(html, "d0")
    assert [case["q"], case["ref"], case["l"][0][1]] == [printable(attack), [printable(attack)], printable(attack)]


def test_only_the_pages_own_style_and_script_may_act(tmp_path: Path) -> None:
    found = Elements(page(write(tmp_path)))
    (policy,) = [a["content"] or "" for tag, a in found.tags if tag == "meta" and "http-equiv" in a]

    def named(tag: str) -> str:
        return base64.b64encode(hashlib.sha256("".join(found.inside[tag]).encode()).digest()).decode()

    assert policy == (
        f"default-src 'none'; style-src 'sha256-{named('style')}'; script-src 'sha256-{named('script')}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    scripts = [attrs for tag, attrs in found.tags if tag == "script" and attrs.get("type") != "text/plain"]
    assert scripts == [{}]
    assert {a["href"][0] for _, a in found.tags if a.get("href")} == {"#"}  # type: ignore[index]
    assert not [a for _, a in found.tags if "src" in a or "style" in a or any(name.startswith("on") for name in a)]
    ids = {a["id"] for _, a in found.tags if a.get("id")}
    sections = {a["href"][1:] for _, a in found.tags if not (a.get("href") or "#v=").startswith("#v=")}  # type: ignore[index]
    assert sections <= ids
    assert "url(" not in "".join(found.inside["style"])
    for way in ("innerHTML", "insertAdjacent", "document.write", "eval(", "fetch", "XMLHttp"):
        assert way not in "".join(found.inside["script"])


def test_equal_runs_are_equal_bytes_and_nothing_is_rewritten(tmp_path: Path) -> None:
    root = tmp_path / "one" / "run"
    first = page(write(root))
    before = (root / "report.html").stat()
    assert page(root) == first
    after = (root / "report.html").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    again = write(tmp_path / "two" / "run")
    score(again, SPECS, GATE, signature="x | plain", rates={}, spent=spent(5, usd=1.0))
    score(root, SPECS, GATE, signature="x | plain", rates={})
    assert page(again) == page(root), "what this machine paid differs from another's, and is no part of the page"


def test_the_page_says_what_the_files_say(tmp_path: Path) -> None:
    """faithfulness 0, .3, .6: mean .30; correctness: three errors; the gate asks for .9."""
    html = page(write(tmp_path, details=CLAIMS), percent=["faithfulness"])
    text = "".join(Elements(html).texts)
    for said in (
        "3 cases on 3 questions, iteration 1", "30.0", "too few", "0% of 3", "coverage 0.0%", "Not calibrated",
        "BLOCKED 1 of 1 gate failed: plain 0.3 [0.02, 0.90], at least 0.9.", "passes from 85", "3 judgements with an error",
    ):  # fmt: skip
        assert said in text, said
    first = block_json(html, "d0")[0]
    assert [(call["m"], call["in"], call["out"]) for call in first["j"]] == [("faithfulness", 812, 93)]
    (claims,) = first["s"]["faithfulness"]["b"]
    assert claims["r"][0] == ["It opened in 1901.", True, "opened  in\n1901", "said so"]
    assert first["s"]["n_claims"] == {"r": "plain"}


def test_the_lowest_cases_come_first_and_those_without_a_score_last(tmp_path: Path) -> None:
    """By overall score, then by how many scores failed, then by place; a case that failed nothing is none of them."""
    failed = {"q0": (None, 2), "q1": (0.5, 1), "q2": (0.1, 0), "q3": (0.5, 2), "q4": (0.0, 1), "q5": (0.5, 2)}
    rows = [
        {"sample_id": name, "method": "a", "repeat": 1, "overall_score": score, "overall_passed": True, "failed_by": ["s"] * n}
        for name, (score, n) in failed.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "records.parquet")
    assert [row["sample_id"] for row in lowest_cases(tmp_path / "records.parquet", 4)] == ["q4", "q3", "q5", "q1"]
    assert lowest_cases(tmp_path / "records.parquet", 9)[-1]["sample_id"] == "q0"


@pytest.mark.parametrize(("text", "quote", "found"), [
    ("It opened in 1901, they say.", "opened  in\n1901", ["opened in 1901"]),
    ("Café — “quoted” text", 'café - "quoted" TEXT', ["Café — “quoted” text"]),
    ("one two three four five six seven", "one two three ... five six seven", ["one two three", "five six seven"]),
    ("a b a b", "a b", ["a b", "a b"]), ("nothing here", "not in it", []), ("nothing here", "", []), ("dots ... dots", "...", []),
    ("(.*) is literal", "(.*) is", ["(.*) is"]),
])  # fmt: skip
def test_quotes_are_marked_where_they_occur(text: str, quote: str, found: list[str]) -> None:
    parts = views.highlight(text, views.Quotes([(quote, "supports")]))
    assert "".join(part.text for part in parts) == text
    assert [part.text for part in parts if part.mark] == found


def checked(claim: str, verdict: str, *evidence: str) -> dict[str, Any]:
    place = {"chunk": "c1", "rank": 1, "start": 3, "end": 9}
    quotes = [{"quote": quote, "places": [place]} for quote in evidence]
    return {"claim": claim, "supported": verdict == "supported", "verdict": verdict, "evidence": quotes}


NOWHERE = "no context word for word"
HOUSE = "The house opened in 1901. It was blue. It has a door."
VERDICTS = [
    checked("The house opened", "supported", "opened in 1901", "It was blue"),
    checked("It was red.", "contradicted", "It was blue"),
    checked("It has a roof.", "not_supported", "It has a door"),
]


def test_contradicting_passages_are_marked_and_named_on_the_page(tmp_path: Path) -> None:
    """They have a sign of their own, and a passage that also supports another claim is shown as contradicting."""
    write(tmp_path, f"{HOUSE} It was red. It has a roof.", details={"claims": VERDICTS}, cases=1)
    case = only_case(tmp_path)
    assert [(p.text, p.mark) for p in case.contexts[0]["text"] if p.mark] == [
        ("opened in 1901", "supports"), ("It was blue", "contradicts"), ("It has a door", "quoted")
    ]  # fmt: skip
    assert [(p.text, p.mark) for p in case.answer or () if p.mark] == [("It was red.", "contradicted"), ("It has a roof.", "unsupported")]
    assert case.marks == ["contradicts", "supports", "quoted", "contradicted", "unsupported"]
    html = page(tmp_path)
    claim = ["It was red.", [["It was blue", "context 1 (chunk c1), characters 3 to 9"]]]
    assert block_json(html, "d0")[0]["s"]["faithfulness"]["c"] == [claim]
    assert block_json(html, "d0")[0]["a"] == [f"{HOUSE} ", ["It was red.", "contradicted"], " ", ["It has a roof.", "unsupported"]]
    assert block_json(html, "index")["marks"] == views.MARKS
    assert 'mark.contradicts::before, mark.contradicted::before { content: "\\2260' in html


START = {"chunk": "a", "rank": 2, "start": 0, "end": 1}
LATER = {"chunk": "a", "rank": 2, "start": 5, "end": 8}
OTHER = {"chunk": "b", "rank": 3, "start": 4, "end": 5}


@pytest.mark.parametrize(("evidence", "passages"), [
    ([{"quote": "q", "places": [START]}], [("q", "context 2 (chunk a), characters 0 to 1")]),
    ([{"quote": "q", "places": [START, LATER, OTHER]}],
     [("q", "context 2 (chunk a), characters 0 to 1 and 5 to 8; context 3 (chunk b), characters 4 to 5")]),
    ([{"quote": "q", "places": []}, {"quote": "r"}], [("q", NOWHERE), ("r", NOWHERE)]),
    (["q", 5, None, {"quote": 5}, {"places": [1]}, {"quote": "q", "places": [1]}, {"quote": "q", "places": "x"}], [("q", NOWHERE), ("q", NOWHERE)]),
    ("q", []),
    (None, []),
])  # fmt: skip
def test_passages_are_read_from_any_details(evidence: Any, passages: list[tuple[str, str]]) -> None:
    assert [(passage.quote, passage.place) for passage in views.passages_of(evidence)] == passages


def test_claims_and_details_of_any_metric() -> None:
    """With several references the claims of each are listed below it; groundedness lists claims without a verdict."""
    nested = {"references": [{"reference": 1, "claims": VERDICTS}]}
    assert views.unsupported_claims([{"unsupported_claims": ["It was red.", "Other."]}, *views.found_in(nested)]) == [
        ("It was red.", "contradicted"), ("Other.", "unsupported"), ("It has a roof.", "unsupported")
    ]  # fmt: skip
    assert views.evidence_quotes(views.found_in(nested)) == [
        ("It was blue", "contradicts"), ("opened in 1901", "supports"), ("It was blue", "supports"), ("It has a door", "quoted")
    ]  # fmt: skip
    assert [claim.claim for claim in views.contradicted_claims(views.found_in(nested))] == ["It was red."]
    details = {
        "n": 2, "rows": [{"a": 1, "b": True}, {"a": 0.5, "c": [1]}], "flags": ["x"], "none": None, "list": [], "deep": {"a": {"b": 1}},
    }  # fmt: skip
    assert views.detail_blocks(details) == [
        views.DetailBlock("rows", ("a", "b", "c"), (("1", True, ""), ("0.5", "", "[1]"))),
        views.DetailBlock("flags", items=("x",)),
        views.DetailBlock("", ("", ""), (("n", "2"), ("deep", '{"a": {"b": 1}}'))),
    ]
    assert views.detail_blocks({"many": ["x"] * 100})[0].more == 40
    quoted = {"v": [{"evidence": "e", "supported": [1]}, {"quote": ["q", 5, " "]}]}
    assert views.evidence_quotes(views.found_in(quoted)) == [("e", "quoted"), ("q", "quoted")]
    listed = views.unsupported_claims(views.found_in({"unsupported_claims": ["u", 3], "claims": [{"claim": "c", "supported": False}]}))
    assert listed == [("u", "unsupported"), ("c", "unsupported")]
    quotes = [{"quote": "q", "places": [START]}, {"quote": "r", "places": []}]
    shown = '"q": context 2 (chunk a), characters 0 to 1\n"r": no context word for word'
    assert views.detail_blocks({"claims": [{"evidence": quotes}]}) == [views.DetailBlock("claims", ("evidence",), ((shown,),))]


def test_what_a_metric_accepts_as_a_quote_is_marked_on_the_page(tmp_path: Path) -> None:
    """Soft hyphens, composed letters and the sharp s are no reason for a quote to be missed; nor is a long text."""
    text = "heute co\u00adop gesperrt. Café open daily; in der straße zwölf Uhr. " + "x " * 5000
    quotes = ["coop gesperrt", "Cafe\u0301 open daily", "STRASSE zwölf Uhr"]
    claims = {"claims": [{"claim": f"c{i}", "supported": True, "evidence": quote} for i, quote in enumerate(quotes)]}
    write(tmp_path, text, details=claims, cases=1)
    case = only_case(tmp_path)
    marked = [part.text for part in case.contexts[0]["text"] if part.mark == "supports"]
    assert marked == ["co\u00adop gesperrt", "Café open daily", "straße zwölf Uhr"]
    assert case.contexts[0]["text"][-1].text.endswith("more characters in the tables)")


def test_a_message_is_shown_once_in_a_case(tmp_path: Path) -> None:
    messages = [[{"role": "system", "content": "Judge."}, {"role": "user", "content": f"Part {i}"}] for i in (1, 2)]
    calls = [{**CALL, "sample_id": "q", "key": f"k{i}", "flags": [], "messages": json.dumps(m)} for i, m in enumerate(messages)]
    write_run(tmp_path, [Row("q", "a", {"faithfulness": 0.5})], calls)
    score(tmp_path, SPECS[:1])
    case = only_case(tmp_path)
    first, second = (call["messages"] for call in case.calls)
    assert first == [("system", "Judge."), ("user", "Part 1")]
    assert second == [("system", "(the same as in question 1)"), ("user", "Part 2")]


def test_a_run_of_a_stranger_is_data(tmp_path: Path) -> None:
    """Broken JSON in cells, deep nesting and odd shapes are shown as nothing or as text, and stop nothing."""
    write(tmp_path, details=[1, 2])
    outputs = pq.read_table(tmp_path / "outputs.parquet")
    odd = pa.array([None, [], ["text", "5", None]])
    place = outputs.schema.get_field_index("chunks")
    pq.write_table(outputs.set_column(place, "chunks", odd), tmp_path / "outputs.parquet")
    html = page(tmp_path)
    assert len(block_json(html, "index")["sample"]) == 3
    assert [len(case.get("k", ())) for case in block_json(html, "d0")] == [0, 0, 3]


WORD_SPECS = [ScoreSpec(name, 0, 1) for name in ("faithfulness", "citation")]
WEIGHTS = {"faithfulness": 0.4, "citation": 0.4, "rejection_calibration": 0.2}


def report_of(root: Path, calls: list[dict[str, Any]], **report: Any) -> Report:
    rows = [
        Row(f"q{n}", method, {"faithfulness": value, "citation": value}) for method, value in (("old", 0.2), ("new", 0.8)) for n in range(6)
    ]
    write_run(root, rows, calls)
    settings = {"thresholds": {"faithfulness": 0.5}, "weights": WEIGHTS, "fill_defaults": False}
    score(root, WORD_SPECS, ScoringSettings.model_validate(settings))
    run = RunFolder(root)
    return build_report(read_report_data(run, run.iteration(1), ReportSettings.model_validate(report)))


def test_cost_and_parts_of_a_run(tmp_path: Path) -> None:
    call = {"sample_id": "q0", "method": "old", "metric": "faithfulness", "judge": "j", "status": "ok", "attempts": 0}
    page = markdown_of(report_of(tmp_path, [{**call, "key": "1"}, {**call, "key": "2"}]))
    cost = page.partition("## Cost")[2].partition("\n## ")[0]
    assert "| metric | checks | without a result |" in cost
    assert "| `all` | 2 | 0 |" in cost
    assert "tokens" not in cost
    assert "A case on average" not in cost
    page = markdown_of(report_of(tmp_path, [{**call, "key": "1", "status": "missing_reply"}]))
    assert "answered without a call" not in page
    assert "missing_reply" in page.partition("## Cost")[2].partition("\n## ")[0]
    report = report_of(tmp_path, [], formats=["html"])
    (better,) = (section for section in report.sections if section.name == "better")
    markup = "".join(str(part.markup) for part in better.parts if isinstance(part, Chart))
    assert "overall_score: 2 of 3 parts (faithfulness, citation)." in markup
