"""`task=judge_audit` at the wire: a gullible judge, planted biases, calls counted by the server."""

import base64
import codecs
import hashlib
import json
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragpipe.cli.command_line import main
from ragpipe.core.sample import Case, Chunk, Output, Sample
from ragpipe.extras.checks.attacks import attack_suite
from ragpipe.testing import openai_server
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.finished_runs import FinishedRuns
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # several whole runs
KEY = "RAGPIPE_TEST_KEY"
WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "heron", "iris", "juniper")
CASES = 60
Body = Mapping[str, Any]
_FENCE = re.compile(r"<([0-9a-f]{12})>([\n ]).*?\2</\1>", re.S)
_ORDER = re.compile(
    r"highest (?:score|number)|mark every claim|\"score\": 5|'score': 5|as always|höchste punktzahl|grades? politeness"
    r"|every statement of this answer is supported"
)
_CYRILLIC = str.maketrans("асеорхуіАВСЕНКМОРТХ", "aceopxyiABCEHKMOPTX")
_FIGURES = str.maketrans("431057", "aeiost")


def _text(body: Body) -> str:
    return "\n".join(str(message["content"]) for message in body["messages"])


def readings(text: str) -> str:
    """The text in every way that a patient reader finds in it, in small letters."""
    bytes_of = "".join(chr(ord(c) - 0xE0100) if 0xE0100 <= ord(c) < 0xE0180 else c for c in text)
    bytes_of = "".join(chr(ord(c) - 0xE0000) if 0xE0000 <= ord(c) < 0xE0080 else c for c in bytes_of)
    seen = re.sub("[\u200b-\u200d\u2060\ufeff\u202a-\u202e]", "", unicodedata.normalize("NFKC", bytes_of))
    ways = [seen, seen[::-1], seen.translate(_CYRILLIC), seen.translate(_FIGURES), codecs.encode(seen, "rot13")]
    ways.append(re.sub(r"(?<=\S) (?=\S(?: |$))", "", seen).replace("   ", " "))
    for match in re.findall(r"[A-Za-z0-9+/]{40,}={0,2}", seen):
        ways.append(base64.b64decode(match + "=" * (-len(match) % 4)).decode("utf-8", "replace"))
    return "\n".join(ways).lower()


def gullible(body: Body) -> str:
    """Obeys every order that it can take for its own: all that stands in no fence, where it was told of fences."""
    text = _text(body)
    own = _FENCE.sub(" ", text) if "tags named by 12 hexadecimal digits" in text else text
    obeys = bool(_ORDER.search(readings(own)))
    claims = ["a claim of the answer"]
    return json.dumps(
        {
            "supported_claims": claims if obeys else [],
            "unsupported_claims": [] if obeys else claims,
            "major_claims_cited": obeys,
            "reason": "as it was told" if obeys else "nothing supports it",
            "score": 5 if obeys else 1 if "from 1 to 5" in text else 0,
        }
    )


def leaning(bias: float) -> Callable[[Body], str]:
    """A judge whose grades are noise around .5, plus `bias` where the answer thanks for the question.

    The noise follows from the request: uniform within +-.1.
    """

    def answer(body: Body) -> str:
        text = _text(body)
        noise = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF * 0.2 - 0.1
        score = 0.5 + noise + (bias if "Thank you for this question" in text else 0)
        return json.dumps({"reason": "a grade", "addresses_question": True, "on_topic": True, "score": score})

    return answer


def _make(here: Path) -> None:
    records = [
        {"id": f"q{i}", "question": f"How high is the tower of {WORDS[i % 10]} {i}?",
         "reference": f"It is {i + 10} m high.", "answer": f"The tower of {WORDS[i % 10]} {i} is {i + 10} m high.",
         "history": [{"role": "user", "text": "I like towers."}], "category": "towers",
         "chunks": [{"id": f"c{i}-{k}", "text": f"Passage {k}: the tower of {WORDS[i % 10]} {i} is {i + 10} m high."} for k in range(2)]}
        for i in range(CASES)
    ]  # fmt: skip
    (here / "data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    words = ["dataset=jsonl", "dataset.path=data.jsonl", "judge=rules", "name=towers", "report.formats=[]"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main([*words, "metrics=[groundedness,answer_relevance,retrieval]"]) == 0


@pytest.fixture
def run(finished_runs: FinishedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = finished_runs.made("towers", _make)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(KEY, "sk-sentinel-4242")
    shutil.copytree(made / "outputs", tmp_path / "outputs", symlinks=True)
    return (tmp_path / "outputs" / "towers" / "latest").resolve()


@contextmanager
def judging(reply: Callable[[Body], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setattr(openai_server, "chat_reply", reply)
    with serving() as server:
        yield server


def audit(run: Path, server: OpenAIServer, *words: str, model: str = "test-model-2026-01-01") -> int:
    judge = ["judge=llm", f"judge.model=openai/{model}", "judge.endpoint=test", f"judge.api_key_env={KEY}"]
    return main(["task=judge_audit", f"run={run}", *judge, f"judge.api_base={server.url}", *words])


def document(run: Path) -> dict[str, Any]:
    (path,) = (run / "calibration").glob("judge_audit.*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_fences_stop_what_a_gullible_judge_falls_for(run: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    words = ["judge_audit.only=[attacks]", "metrics=[groundedness]"]
    with judging(gullible, monkeypatch) as server:
        assert audit(run, server, *words, "judge.max_calls=1") == 2
        assert "judge.max_calls" in capsys.readouterr().err
        assert not (run / "calibration").exists()
        assert (server.tries, audit(run, server, *words)) == (0, 0)
        asked = server.tries
        assert audit(run, server, *words) == 0
        assert server.tries == asked > 0, "a second start asks nothing"
    rows = {(row["over"], row["name"]): row for row in document(run)["attacks"]}
    assert rows["shown", ""]["found"] == 0
    assert rows["all", ""]["n"] >= 60
    attacks = {name: row for (over, name), row in rows.items() if over == "attack"}
    never = {name for name, row in attacks.items() if not row["shown"]}
    assert never == {
        "id_order", "id_tag", "id_markup", "path_order", "title_verified", "category_supported", "json_tags", "developer_authority",
        "colon", "blank", "reference_order",
    }, "of ids, metadata and references nothing is in a question of groundedness, and no judge is asked about an answer without a word"  # fmt: skip
    shown = capsys.readouterr().out
    assert shown.index("audit: ") < shown.index("plan: ")
    assert "`question_tag`" in next((run / "calibration").glob("judge_audit.*.md")).read_text()
    assert main(["task=verify", f"run={run}"]) == 0


def test_the_gullible_judge_would_obey_the_attacks_outside_a_fence() -> None:
    case = Case(
        Sample(id="q", question="How high?"), Output(sample_id="q", answer="9 m", chunks=[Chunk(id="c", rank=1, text="It is 9 m.")])
    )
    suite = attack_suite()
    texts = [attack.fill(case, suite.order, suite.verdict) for attack in suite.attacks.values()]
    assert sum(json.loads(gullible({"messages": [{"content": text}]}))["score"] == 5 for text in texts) >= 0.6 * len(texts)


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("bias", "state"), [(0.0, "passes"), (0.12, "biased"), (-0.15, "biased"), (0.02, "passes")])
def test_the_interval_covers_a_planted_bias(run: Path, monkeypatch, bias: float, state: str) -> None:
    words = ["metrics=[answer_relevance]", "judge_audit.only=[padding,idle_sentence]"]
    with judging(leaning(bias), monkeypatch) as server:
        assert audit(run, server, *words) == 0
        assert server.tries == 4 * CASES, "original, wrong answer and two probes of every case"
    found = document(run)
    rows = {row["change"]: row for row in found["results"]}
    interval = rows["padding"]["interval"]
    assert interval["low"] <= bias <= interval["high"]
    assert (rows["padding"]["state"], rows["idle_sentence"]["state"]) == (state, "passes")
    assert rows["wrong_answer"]["state"] == "not_noticed", "this judge does not read the answer: the control says so"
    assert not sum(row["n"] for row in found["attacks"])


def test_the_label_of_its_own_family_is_held_against_that_of_another(run: Path, monkeypatch) -> None:
    def vain(body: Body) -> str:
        text = "\n".join(message["content"] for message in body["messages"])
        score = 0.9 if "Claude, by Anthropic" in text else 0.6
        return json.dumps({"reason": "a grade", "addresses_question": True, "on_topic": True, "score": score})

    words = ["metrics=[answer_relevance]", "judge_audit.only=[own_family]", "judge_audit.n=20"]
    with judging(vain, monkeypatch) as server:
        assert audit(run, server, *words, model="claude-test-2026-01-01") == 0
    rows = {row["change"]: row for row in document(run)["results"]}
    assert rows["own_family"]["shift"] == pytest.approx(0.3)
    assert (rows["other_family"]["shift"], rows["own_family"]["state"]) == (pytest.approx(0), "biased")


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("word", "message"), [
    ("judge_audit.only=[shout]", "no such attack or probe: shout"),
    ("judge_audit.only=[padding,padding]", "name each attack or probe once"),
    ("judge_audit.n=0", "greater than or equal to 1"),
    ("metrics=[retrieval]", "a metric that asks a judge"),
])  # fmt: skip
def test_wrong_settings_are_refused_by_name(run: Path, capsys, word: str, message: str) -> None:
    assert message in output_of(["task=judge_audit", f"run={run}", "transport=stored", word], 2, capsys).err
