"""What changed between two starts makes another run: code of the user's, a template, the configuration, the data."""

import importlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import ragpipe
from ragpipe.cli.command_line import main
from ragpipe.core.resources import prompts_dir
from ragpipe.runs.identity import metric_sources
from ragpipe.testing.openai_server import serving
from tests.support.harness import arguments, write_cases
from tests.support.place import output_of

pytestmark = pytest.mark.slow  # whole runs, several per test
COMPUTED = """
from ragpipe.metrics.base import Computed
from ragpipe.core.score import Score

class Fixed(Computed):
    def compute(self, cases):
        return [Score({value}) for _ in cases]
"""
JUDGED = """
from typing import ClassVar
from ragpipe.metrics.base import Metric
from ragpipe.judge.prompt import Prompt
from ragpipe.core.score import Score, ScoreSpec
from mymetrics.answers import Mood

class Polite(Metric):
    grade: Prompt

    async def measure(self, case, judge):
        found = await judge(self.grade, Mood, answer=case.answer)
        return Score(FACTOR * found.score / 5)
"""
ANSWERS = """
from typing import Annotated
from pydantic import Field
from ragpipe.judge.answer_type import Answer, Number

class Mood(Answer):
    reason: str = ""
    score: Annotated[Number, Field(ge=1, le=5)]
"""
TEMPLATE = "---\nroles: {answer: text}\n---\n[[user]]\nAnswer:\n{{ answer }}\n\nGrade it from 1 to 5 as JSON.\n"


JUDGE = """
from typing import ClassVar, Literal
from ragpipe.judge.answers import Groundedness
from ragpipe.judge.question import AnyJudge

class MySettings(AnyJudge):
    implementation: ClassVar[str] = "myjudges.judge:MyJudge"
    keeps_replies: ClassVar[bool] = False
    kind: Literal["mine"] = "mine"

class MyJudge:
    def __init__(self, settings):
        pass

    def answer(self, prompt, answer, values):
        return Groundedness(supported_claims=[], unsupported_claims=[], score={grade})
"""


@pytest.fixture
def here(code_here: Path) -> Path:
    return code_here


def forget() -> None:
    """As a new process would: what it imports stands in the files. Bytecode goes by seconds."""
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mymetrics", "myjudges", "mysystem", "zipped")]:
        del sys.modules[name]


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    for source in Path(path).parent.rglob("*.py"):
        Path(importlib.util.cache_from_source(str(source.resolve()))).unlink(missing_ok=True)
    forget()


def mean(name: str, score: str) -> Any:
    return ragpipe.load(f"outputs/{name}/latest").metrics["overall"]["scores"][score]["mean"]


def run_id(name: str) -> str:
    return Path(f"outputs/{name}/latest").resolve().name


def test_an_edited_judge_judges_anew(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("q.jsonl").write_text('{"id": "a", "question": "Why?", "answer": "Because.", "contexts": ["Because."]}\n')
    words = ["dataset=jsonl", "dataset.path=q.jsonl", "name=mine", "plugins=[myjudges]", "metrics=[groundedness]", "judge=mine"]
    write("myjudges/judge.py", JUDGE.format(grade=5))
    write("myjudges/__init__.py", 'ENTRIES = {"judge": {"mine": "myjudges.judge:MySettings"}}\n')
    Path("conf/judge").mkdir(parents=True)
    Path("conf/judge/mine.yaml").write_text("kind: mine\n")
    assert main(words) == 0
    first, best = run_id("mine"), mean("mine", "groundedness")
    write("myjudges/judge.py", JUDGE.format(grade=1))
    capfd.readouterr()
    assert main(words) == 0
    assert mean("mine", "groundedness") < best
    assert f"differs from run {first}: code of the judge\n" in capfd.readouterr().out
    assert main(["task=rescore", f"run=outputs/mine/{first}", "plugins=[myjudges]", "scoring.thresholds.groundedness=4.5"]) == 2
    assert "a needed reply is not stored" in capfd.readouterr().err, "what the older judge said is not what this one says"
    assert main(["task=rejudge", f"run=outputs/mine/{first}", "plugins=[myjudges]", "judge=mine", "output_dir=again"]) == 0
    assert "0 taken from" in capfd.readouterr().out
    assert main(["task=verify", f"run=outputs/mine/{first}", "plugins=[myjudges]"]) == 3
    assert "differs  the source of the judge: judge_identity.implementation.myjudges.judge" in capfd.readouterr().out


def test_an_edited_metric_is_computed_anew(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("q.jsonl").write_text('{"id": "a", "question": "Why?", "answer": "Because."}\n')
    words = ["dataset=jsonl", "dataset.path=q.jsonl", "name=mine", "plugins=[mymetrics]", "metrics=[]"]
    words += ["+metrics.fixed={class: mymetrics.fixed.Fixed}"]
    write("mymetrics/fixed.py", COMPUTED.format(value="0.25"))
    assert main(words) == 0
    first = run_id("mine")
    assert mean("mine", "fixed") == 0.25
    write("mymetrics/fixed.py", COMPUTED.format(value="0.75"))
    capfd.readouterr()
    assert main(words) == 0
    assert mean("mine", "fixed") == 0.75
    assert f"differs from run {first}: code of metric fixed\n" in capfd.readouterr().out
    assert main(["task=verify", f"run=outputs/mine/{first}", "plugins=[mymetrics]"]) == 3
    assert "differs  the source of a metric: metrics.fixed.source.mymetrics.fixed" in capfd.readouterr().out
    write("mymetrics/fixed.py", COMPUTED.format(value="0.25"))
    assert main(words) == 0
    assert run_id("mine") == first, "the same source is the same run"


def test_an_edited_judge_metric_asks_nothing_again(here: Path) -> None:
    """Neither does an edit of the module of its answer type, unless it changes what is asked."""
    data = write_cases(here / "data.jsonl", 4)
    write("prompts/polite/grade.v1.jinja", TEMPLATE)
    write("mymetrics/answers.py", ANSWERS)
    write("mymetrics/polite.py", JUDGED.replace("FACTOR", "1"))
    runs = []
    with serving() as server:
        words = [*arguments(data, here / "outputs", server.url, metrics=""), "plugins=[mymetrics]", "prompt_dirs=[prompts]"]
        words += ["+metrics.polite={class: mymetrics.polite.Polite, prompts: {grade: v1}}"]

        def start() -> tuple[int, float]:
            assert main(words) == 0
            runs.append(run_id("torture"))
            return server.tries, mean("torture", "polite")

        asked, before = start()
        write("mymetrics/polite.py", JUDGED.replace("FACTOR", "0.5"))
        assert start() == (asked, pytest.approx(before / 2))
        write("mymetrics/answers.py", ANSWERS + "\n# a remark\n")
        assert start() == (asked, pytest.approx(before / 2))
        write("mymetrics/answers.py", ANSWERS.replace("Number, Field(", "Number, Field(description='How kind.', "))
        again, _ = start()
    assert asked >= 4
    assert again == 2 * asked, "another description is another question"
    assert len(set(runs)) == 4


def test_code_that_was_edited_after_its_import_is_what_it_was_and_named(here: Path) -> None:
    write("mymetrics/fixed.py", COMPUTED.format(value="1"))
    module = importlib.import_module("mymetrics.fixed")
    before = metric_sources(module.Fixed)
    Path("mymetrics/fixed.py").write_text(COMPUTED.format(value="12"))
    sources, (note,) = metric_sources(module.Fixed)
    assert sources == before.sources
    assert note.startswith("mymetrics.fixed was edited after this process imported it")
    after = metric_sources(importlib.reload(module).Fixed)
    assert after.sources != before.sources
    assert after.notes == ()


SYSTEM = """
def answer(sample):
    with open("asked.txt", "a") as file:
        file.write("x")
    return {{"answer": "{text}", "contexts": ["Paris is the capital of France."]}}
"""
LIVE = [
    "dataset=jsonl", "dataset.path=q.jsonl", "metrics=[faithfulness]", "name=live", "plugins=[mysystem]", "system=python",
    "system.callable=mysystem.rag:answer",
]  # fmt: skip


def asked() -> int:
    return len(Path("asked.txt").read_text())


def answers(name: str = "live") -> set[str]:
    return set(ragpipe.load(f"outputs/{name}/latest").records["answer"])


@pytest.fixture
def live(here: Path) -> Path:
    Path("q.jsonl").write_text("".join(f'{{"id": "q{i}", "question": "Capital?"}}\n' for i in range(3)))
    write("mysystem/rag.py", SYSTEM.format(text="Berlin is the capital."))
    assert main(LIVE) == 0
    assert asked() == 3
    write("mysystem/rag.py", SYSTEM.format(text="Paris is the capital of France."))
    return here


def test_an_edited_system_is_asked_anew_and_that_is_said_first(live: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = run_id("live")
    said = output_of(LIVE, 0, capfd).out
    assert (asked(), answers()) == (6, {"Paris is the capital of France."})
    places = [said.index(f"differs from run {first}: code of the system\n"),
              said.index("outputs are collected again"), said.index("collected 3 outputs")]  # fmt: skip
    assert places == sorted(places)


def test_a_finished_run_is_rescored_and_verified_without_its_system(live: Path) -> None:
    Path("mysystem/rag.py").unlink()
    forget()
    folder = f"run={Path('outputs/live/latest').resolve()}"
    assert main(["task=verify", folder]) == 0
    assert main(["task=rescore", folder]) == 0
    assert asked() == 3


CASE = {"id": "q1", "question": "Who wrote it?", "answer": "Ada wrote it in 1843.", "contexts": ["Ada wrote it in 1843."]}
WORDS = ["dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[faithfulness]", "name=x"]


def started(*words: str, **changes: object) -> int:
    write("cases.jsonl", json.dumps({**CASE, **changes}))
    return main([*WORDS, *words])


def folders() -> set[str]:
    return {path.name for path in Path("outputs/x").iterdir() if path.is_dir() and not path.is_symlink()}


def test_a_changed_configuration_opens_its_own_folder_and_says_the_difference(here: Path, capsys) -> None:
    """[E8]"""
    assert started() == 0
    assert started("scoring.thresholds.faithfulness=0.5") == 0
    assert len(folders()) == 2
    assert "scoring.thresholds.faithfulness: 0.85 -> 0.5" in capsys.readouterr().out
    assert started() == 0
    assert len(folders()) == 2, "going back finds the first folder again"


def test_an_edited_template_opens_its_own_folder_and_is_warned_about(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[E9, E10] told by the text's hash, not by the version's name; both hashes are named."""
    shutil.copytree(prompts_dir() / "faithfulness", "mine/faithfulness")
    assert started("prompt_dirs=[mine]") == 0
    template = Path("mine/faithfulness/verify.v2.jinja")
    template.write_text(template.read_text() + "Be quick.\n")
    capsys.readouterr()
    assert started("prompt_dirs=[mine]") == 0
    said = capsys.readouterr().err
    assert len(folders()) == 2
    hashes = [json.loads(Path(f"outputs/x/{f}/manifest.json").read_text())["prompts"] for f in sorted(folders())]
    texts = {sha[:12] for prompts in hashes for name, sha in prompts.items() if name.startswith("faithfulness/verify.v2@")}
    assert len(texts) == 2
    assert all(text in said for text in texts)
    assert "faithfulness/verify.v2 has another text" in said


def test_a_huge_record_is_read_and_judged(here: Path) -> None:
    """[D19] two million characters of context."""
    assert started(contexts=["word " * 400_000 + "Ada wrote it in 1843."]) == 0
    assert mean("x", "faithfulness") == 1.0
