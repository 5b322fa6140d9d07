"""Edits of a finished run, and the number of new calls each may cause. Counted from the server's log by body hash."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ragpipe.cli.command_line import main
from ragpipe.runs import case_sources
from ragpipe.testing.openai_server import OpenAIServer, serving
from tests.support.harness import ROOT, arguments, write_cases
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # several whole runs
CASES = 12
METRICS = "faithfulness,chunk_faithfulness"


@dataclass
class Bench:
    """A finished run: its arguments, data, prompt folder and server, and how many requests it took, in all and by step."""

    folder: Path
    server: OpenAIServer
    data: Path
    prompts: Path
    args: list[str]
    plugins: Path
    whole: int = 0
    verify: int = 0
    faithfulness: int = 0

    def new_calls(self, *edits: str, args: list[str] | None = None) -> int:
        before = self.bodies()
        assert main([*(args or self.args), *edits]) == 0
        return sum((self.bodies() - before).values())

    def bodies(self) -> Counter[str]:
        return Counter(line["body"] for line in self.server.log)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One server and one finished run for all edits; commands run in this process, through the command line's own door."""
    folder = tmp_path_factory.mktemp("edits")
    data, prompts, plugins = write_cases(folder / "cases.jsonl", CASES), folder / "prompts", folder / "editmetrics"
    plugins.mkdir()
    (plugins / "__init__.py").write_text(
        "from ragpipe.metrics.judged.faithfulness import FaithfulnessMetric\n\n\nclass Renamed(FaithfulnessMetric):\n    folder = 'faithfulness'\n"
    )
    shutil.copytree(ROOT / "prompts" / "faithfulness", prompts / "faithfulness")
    with pytest.MonkeyPatch.context() as monkey, serving() as server:
        args = [*arguments(data, folder / "out", server.url, metrics=METRICS), f"prompt_dirs=[{prompts}]", "plugins=[editmetrics]"]
        bench = Bench(folder, server, data, prompts, args, plugins)
        monkey.setenv("RAGPIPE_TEST_KEY", "sk-sentinel-4242")
        monkey.syspath_prepend(str(folder))
        monkey.chdir(folder)
        bench.faithfulness = bench.new_calls(args=[a.replace(METRICS, "faithfulness") for a in args])
        bench.whole = bench.faithfulness + bench.new_calls()
        bench.verify = bench.faithfulness - CASES  # one question a case extracts the claims
        assert bench.verify >= CASES
        assert bench.whole > bench.faithfulness
        assert max(bench.bodies().values()) == 1, "a body was sent twice"
        yield bench


NOTHING = [
    ("nothing at all", []), ("a weight", ["scoring.weights.faithfulness=0.5"]), ("a threshold", ["scoring.thresholds.faithfulness=0.5"]),
    ("a slice", ["scoring.slices=[difficulty]"]), ("a report option", ["report.formats=[terminal]"]),
    ("concurrency", ["judge.concurrency=3"]), ("retries and timeout", ["judge.retries=1", "judge.timeout_s=30"]),
    ("max_tokens, as no reply was cut", ["judge.max_tokens=4000"]), ("the transport", ["transport=stored"]),
    ("the client", ["judge.client=litellm"]), ("the run's name", ["name=other"]), ("a limit on the data", ["dataset.limit=5"]),
    ("the version that a prompt has", ["metrics.chunk_faithfulness.prompts.first=v3"]),
    ("a renamed metric class", ["metrics.faithfulness.class=editmetrics.Renamed"]),
    ("a small allowance, as nothing is new", ["judge.max_calls=1", "scoring.weights.faithfulness=0.4"]),
    ("the metrics' order", ["metrics=[chunk_faithfulness,faithfulness]"]),
]  # fmt: skip


@pytest.mark.thorough(tried=6)
@pytest.mark.parametrize(("edit", "overrides"), NOTHING, ids=[row[0] for row in NOTHING])
def test_costs_no_call(bench: Bench, edit: str, overrides: list[str]) -> None:
    assert bench.new_calls(*overrides) == 0


def test_what_was_judged_is_taken_where_only_the_scoring_differs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not where failures are to be asked again, from a table that was changed, or by other code: then the stored replies answer."""
    assert bench.new_calls("scoring.thresholds.faithfulness=0.37") == 0
    first = (bench.folder / "out" / "torture" / "latest").resolve() / "iteration-1" / "scores.parquet"
    content = first.read_bytes()
    for edit, is_linked in (("0.38", True), ("0.39 retry_errors=true", False), ("0.41", True), ("0.42", False)):
        assert bench.new_calls(*f"scoring.thresholds.faithfulness={edit}".split()) == 0
        last = (bench.folder / "out" / "torture" / "latest").resolve() / "iteration-1" / "scores.parquet"
        assert (last.stat().st_ino == first.stat().st_ino, last.read_bytes()) == (is_linked, content)
        if edit == "0.41":
            first.write_bytes(content + b" ")
        first = last
    monkeypatch.setattr(case_sources, "code_digest", lambda: "0" * 12)
    assert bench.new_calls("scoring.thresholds.faithfulness=0.43") == 0
    last = (bench.folder / "out" / "torture" / "latest").resolve() / "iteration-1" / "scores.parquet"
    assert (last.stat().st_ino == first.stat().st_ino, last.read_bytes()) == (False, content)


def test_plans_comments_and_a_moved_server(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*bench.args, "task=plan"]) == 0
    assert f"no new call to openai/test-model-2026-01-01@test: all {bench.whole} replies are stored" in capsys.readouterr().out
    more = [a.replace(METRICS, METRICS + ",groundedness") for a in bench.args]
    assert f"about {CASES} new calls" in output_of([*more, "task=plan"], 0, capsys).out
    with serving() as moved:
        args = [a.replace(bench.server.url, moved.url) for a in bench.args]
        assert main(args) == 0
        assert moved.log == []


def test_a_comment_in_a_template_costs_no_call(bench: Bench) -> None:
    path = bench.prompts / "faithfulness" / "verify.v2.jinja"
    text = path.read_text()
    path.write_text(text.replace("[[user]]\n", "[[user]]\n{# why this order: caches #}\n", 1))
    try:
        assert bench.new_calls() == 0
    finally:
        path.write_text(text)


def test_an_edit_asks_its_own_step_metric_or_case_alone(bench: Bench) -> None:
    folder = bench.prompts / "faithfulness"
    (folder / "verify.v3.jinja").write_text((folder / "verify.v2.jinja").read_text().rstrip() + "\nBe brief.\n")
    assert bench.new_calls("metrics.faithfulness.prompts.verify=v3") == bench.verify
    assert bench.new_calls("metrics.faithfulness.prompts.verify=v3") == 0
    assert bench.new_calls(args=[a.replace(METRICS, METRICS + ",correctness") for a in bench.args]) == CASES
    lines = bench.data.read_text().splitlines()
    record = json.loads(lines[3])
    record["answer"] = "Case 3 says something else. It also names nobody."
    changed = bench.folder / "changed.jsonl"
    changed.write_text("\n".join([*lines[:3], json.dumps(record), *lines[4:]]) + "\n")
    args = [re.sub(r"^dataset\.path=.*", f"dataset.path={changed}", a) for a in bench.args]
    assert 0 < bench.new_calls(args=args) <= bench.whole / CASES + 4, "one case's questions, no other's"


@pytest.mark.parametrize("edit", ["judge.model=openai/other-model-2026-02-02", "judge.season=s2"])
def test_another_judge_or_season_asks_everything(bench: Bench, edit: str) -> None:
    assert bench.new_calls(edit) == bench.whole
