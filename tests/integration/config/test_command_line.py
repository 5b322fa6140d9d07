"""What is typed is what is meant: texts, paths, help, the composed YAML, own options, the API from Python."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import ragpipe
from ragpipe.cli import compose, main
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import prompts_dir
from ragpipe.testing.openai_server import serving
from tests.support.broken_configs import CASES, Broken
from tests.support.harness import arguments, write_cases

pytestmark = pytest.mark.slow


RUN = ["dataset=mine", "metrics=[retrieval]"]


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize(
    ("word", "name"),
    [("name=2024", "2024"), ("name=true", "true"), ("name=1e3", "1e3"), ("name=007", "007"), ("name=1.10", "1.10"),
     ("name='a-b'", "a-b"), ("name=null_", "null_"), ("name=2024_11", "2024_11")],
)  # fmt: skip
def test_a_text_is_the_text_that_was_typed(word: str, name: str, here: Path) -> None:
    assert compose([*RUN, word]).name == name


def test_texts_deep_inside(here: Path) -> None:
    config = compose([*RUN, "judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18", "judge.season=2024", "dataset.path=7"])
    assert (config.judge.season, config.dataset.path) == ("2024", "7")


def test_keys_need_no_plus(here: Path) -> None:
    config = compose([*RUN, "judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18", "judge.top_p=0.5", "dataset.limit=3"])
    assert (config.judge.top_p, config.dataset.limit) == (0.5, 3)


def test_a_metric_is_added_changed_and_taken_away(here: Path) -> None:
    config = compose(["dataset=mine", "metrics=[retrieval,correctness]", "metrics.retrieval.k=[2]", "~metrics.correctness"])
    assert list(config.metrics) == ["retrieval"]
    assert list(config.metrics["retrieval"].k) == [2]


def test_own_folder_of_options(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("options")
    (other / "experiment").mkdir()
    (other / "experiment/x.yaml").write_text(
        "# @package _global_\n# mine\ndefaults:\n  - override /dataset: mine\n  - override /metrics: [retrieval]\nname: own\n"
    )
    assert compose(["+experiment=x"], config_dir=str(other)).name == "own"
    with pytest.raises(ConfigError, match="experiment"):
        compose(["+experiment=x"])


def test_all_faults_of_all_sections_at_once(here: Path) -> None:
    words = [*RUN, "seed=-1", "dataset.limit=0", "judge.window=0", "scoring.level=2", "transport.kind=x", "embedder.kind=y",
             "metrics.retrieval.kk=1", "nonsense=1", "store.path=''"]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        compose(words)
    keys = {p.key for p in caught.value.problems}
    assert {"seed", "dataset.limit", "judge.window", "scoring.level", "transport.kind", "embedder.kind",
            "metrics.retrieval.kk", "nonsense", "store.path"} <= keys  # fmt: skip


def test_the_last_to_set_a_key_is_named(here: Path) -> None:
    (here / "conf/experiment").mkdir()
    (here / "conf/experiment/x.yaml").write_text(
        "# @package _global_\n# mine\ndefaults:\n  - override /dataset: mine\n  - override /metrics: [retrieval]\njudge:\n  window: 0\n"
    )
    (here / "conf/mode").mkdir()
    (here / "conf/mode/top.yaml").write_text("# @package _global_\n# mine\njudge:\n\n  window: -5\n")
    for words, where in (
        (["+experiment=x"], "conf/experiment/x.yaml:7"),
        (["+experiment=x", "+mode=top"], "conf/mode/top.yaml:5"),
        (["+experiment=x", "+mode=top", "judge.window=-9"], "command line (judge.window=-9)"),
    ):
        with pytest.raises(ConfigError) as caught:
            compose(words)
        assert [p.where for p in caught.value.problems if p.key == "judge.window"] == [where]


def test_no_words_print_the_help(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    out = capfd.readouterr().out
    for word in ("+experiment=quickstart", "task=init", "task=plan", "judge=llm", " -m ", "--cfg job"):
        assert word in out


@pytest.mark.parametrize("words", [["-V"], ["--version"], ["--version", "+experiment=quickstart"]])
def test_the_version_is_printed_and_nothing_else(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capfd.readouterr().out == f"ragpipe {ragpipe.__version__}\n"


def test_before_task_is_called_once_between_the_checks_and_the_task(here, monkeypatch, capfd) -> None:
    steps: list[str] = []
    monkeypatch.setattr("ragpipe.tasks.init.run", lambda *_: steps.append("task") or 0)

    def start(*words: str) -> list[str]:
        steps.clear()
        main(words, before_task=lambda: steps.append("before"))
        return list(steps)

    assert start("task=init", "dir=a") == ["before", "task"]
    assert start("-m", "task=init", "dir=a,b") == ["before", "task", "task"]
    assert start("--help") == []


def test_garbage_is_collected_once_a_task_has_begun() -> None:
    """A cycle made before stays, one made afterwards goes."""
    code = """
import gc, weakref
from ragpipe.core.process_memory import collect_new_garbage

class Node: pass

def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

gc.disable()
before = cycle()
collect_new_garbage()
after = cycle()
gc.collect()
print(gc.isenabled(), before() is None, after() is None)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == [
        "True", "False", "True",
    ]  # fmt: skip


def test_help_needs_nothing_heavy() -> None:
    code = ("import sys; from ragpipe.cli import main; main(['--help']); "
            "print([m for m in ('hydra', 'pydantic', 'pandas', 'pyarrow', 'litellm', 'rich', 'yaml') if m in sys.modules])")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")


def test_importing_ragpipe_takes_nothing_along() -> None:
    code = ("import sys, ragpipe; "
            "print([m for m in ('hydra', 'pydantic', 'pandas', 'pyarrow', 'litellm') if m in sys.modules])")  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def _interrupted_at(call: int, words: list[str]) -> tuple[int, int]:
    """The exit code of a start that is interrupted at the n-th call inside OmegaConf, and how many calls it made there."""
    made = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal made
        if event == "call" and "omegaconf" in frame.f_code.co_filename:
            made += 1
            if made == call:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        return main(words), made
    finally:
        sys.setprofile(None)


@pytest.mark.thorough
def test_an_interrupt_while_composing_is_no_wrong_configuration(here: Path) -> None:
    """OmegaConf turns an interrupt into errors of its own; every moment of 25 over the whole composing says 130."""
    words = [*RUN, "task=plan"]
    code, calls = _interrupted_at(0, words)
    assert (code, calls > 10_000) == (0, True)
    assert [_interrupted_at(1 + calls * i // 25, words)[0] for i in range(25)] == [130] * 25


@pytest.mark.parametrize("value", ["{X-Tenant: X_TENANT}", "{X-Tenant: X_TENANT, Authorization: 'BOT_TOKEN'}", "{}"])
def test_names_of_variables_may_be_given_as_a_mapping(here: Path, value: str) -> None:
    words = [*RUN, "system=http", "system.url=http://127.0.0.1:1/x", f"system.headers_env={value}"]
    assert "X-Tenant" in compose(words).system.headers_env or value == "{}"


@pytest.mark.parametrize("value", ["sk-abcdefghijklmnop1234", "not a name", "hunter2:x"])
def test_a_value_of_a_header_in_a_mapping_is_refused(here: Path, value: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["system=http", f"system.headers_env={{X-Tenant: X_TENANT, Authorization: {value}}}"]) == 2
    err = capfd.readouterr().err
    assert "system.headers_env" in err
    assert value not in err


def test_a_folder_that_hydra_cannot_make_is_named(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "file").write_text("in the way")
    assert main(["-m", "task=init", "dir=one,two", "hydra.sweep.dir=file/below"]) == 6
    err = capfd.readouterr().err
    assert "a part of the path is a file" in err
    assert "Traceback" not in err


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


def _params() -> list[object]:
    """The first of every row always, the rest with the slow tests: each composes anew, 0.2 s of processor time."""
    seen: Counter[str] = Counter()
    found = []
    for case in CASES:
        row = case.id.split()[0]
        seen[row] += 1
        found.append(pytest.param(case, id=case.id, marks=[pytest.mark.slow] if seen[row] > 1 else []))
    return found


@pytest.mark.thorough(tried=20)
@pytest.mark.parametrize("case", _params())
def test_refused_before_anything(case: Broken, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, text in case.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = _tree(here)
    code = main(case.words)
    out, err = capfd.readouterr()
    assert code == 2, err
    assert "Traceback" not in out + err
    assert [text for text in case.says if text not in err] == [], err
    assert [text for text in case.hides if text in out + err] == []
    assert "found:" in err
    assert "expected:" in err
    assert _tree(here) == before


SHIPPED = (prompts_dir() / "faithfulness" / "combined.v2.jinja").read_text(encoding="utf-8")
TEMPLATE = Path("mine/faithfulness/combined.v3.jinja")
MISTAKES = {  # what is replaced, by what, words of the message, the text of the line that it must name
    "unknown role": ("answer: text", "answer: txt", "the role 'txt' of answer", "answer: txt"),
    "missing role": ("  question: question\n", "", "the variables ['question'] without a role", "{{ question }}"),
    "unknown block": ("[[user]]", "[[usr]]", "the block [[usr]]", "[[usr]]"),
    "misspelt variable": ("{{ answer }}", "{{ anwser }}", "the variables ['anwser'] without a role", "{{ anwser }}"),
    "a variable that no step gives": (
        "  answer: text\n", "  answer: text\n  reference: reference\n",
        "the variable reference, which the step does not give", "{{ reference }}",
    ),
    "a value that has no place": (
        "  question: question\n", "  query: question\n", "['question'], which the step gives", "roles:",
    ),
    "missing key of the reply": ('"verdict" (', "a verdict (", "keys of the reply without verdict", "Reply with a JSON object"),
    "lost answer type": ("answer_type: QuotedClaims\n", "", "the key verdict of another answer type", "Reply with"),
    "an older answer type": (
        "QuotedClaims", "CheckedClaims", "answer_type: QuotedClaims in the front matter", "Reply with",
    ),
    "unknown answer type": ("QuotedClaims", "QuotedClaim", "answer_type: QuotedClaim", "answer_type: QuotedClaim"),
    "answer type of another step": ("QuotedClaims", "QuotedVerdicts", "answer_type: QuotedVerdicts", "answer_type"),
    "unknown front matter": ("optional:", "options:", "front matter", None),
    "a call": ("{{ answer }}", "{{ answer.upper() }}", "a call", "{{ answer.upper() }}"),
}  # fmt: skip


def mistaken(name: str) -> str:
    old, new, *_ = MISTAKES[name]
    assert old in SHIPPED
    text = SHIPPED.replace(old, new)
    if name == "a variable that no step gives":
        text = text.replace("{{ answer }}", "{{ answer }}\n{{ reference }}")
    if name == "a value that has no place":
        text = text.replace("{{ question }}", "{{ query }}")
    return text


def started(text: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """A run that asks by this template: its exit code, and the requests that reached the server."""
    monkeypatch.chdir(here)
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "k")
    TEMPLATE.parent.mkdir(parents=True)
    TEMPLATE.write_text(text, encoding="utf-8")
    with serving() as server:
        words = [
            *arguments(write_cases(here / "cases.jsonl", 2), here / "outputs", server.url, metrics="faithfulness"),
            "metrics.faithfulness.steps=combined",
            "metrics.faithfulness.prompts.combined=v3",
            "prompt_dirs=[mine]",
        ]
        return main(words), server.tries


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_with_its_line_before_anything_is_asked(name: str, tmp_path, monkeypatch, capfd) -> None:
    text = mistaken(name)
    assert started(text, tmp_path, monkeypatch) == (2, 0)
    *_, said, at = MISTAKES[name]
    error = capfd.readouterr().err
    lines = [number for number, line in enumerate(text.splitlines(), 1) if at and at in line] or [2]
    assert any(f"{TEMPLATE}:{number}" in error for number in lines), error
    assert said in error


def test_a_correct_template_of_ones_own_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    correct = SHIPPED.replace("Task: list", "Task: carefully list")
    assert started(correct, tmp_path, monkeypatch) == (0, 2)
