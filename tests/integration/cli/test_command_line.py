"""What is typed is what is meant: texts, paths, help, the composed YAML, own options, the API from Python."""

import re
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

import ragpipe
from ragpipe.cli.command_line import compose, main
from ragpipe.cli.tasks.schema import task_keys
from ragpipe.core import registry
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import prompts_dir
from ragpipe.core.settings import setting_keys
from ragpipe.testing.openai_server import serving
from tests.support.broken_configs import CASES, Broken
from tests.support.harness import arguments, write_cases
from tests.support.own_options import here as here
from tests.support.place import output_of

pytestmark = pytest.mark.slow
RUN = ["dataset=mine", "metrics=[retrieval]"]


@pytest.mark.thorough(tried=3)
@pytest.mark.parametrize("text", ["true", "1e3", "007", "1.10", "'a-b'", "2024_11"])
def test_a_text_is_the_text_that_was_typed(text: str, here: Path) -> None:
    assert compose([*RUN, f"name={text}"]).name == text.strip("'")


def test_keys_need_no_plus_and_all_faults_come_at_once(here: Path) -> None:
    words = ["judge.temperature=0.5", "judge.season=2024", "dataset.limit=3", "dataset.path=7"]  # season and path are texts
    config = compose([*RUN, "judge=llm", "judge.model=openai/gpt-4o-mini-2024-07-18", *words])
    assert (config.judge.temperature, config.judge.season) == (0.5, "2024")
    assert (config.dataset.limit, config.dataset.path) == (3, "7")
    words = [*RUN, "seed=-1", "dataset.limit=0", "judge.threshold=0", "scoring.level=2", "transport.kind=x", "embedder.kind=y",
             "metrics.retrieval.kk=1", "nonsense=1", "store.path=''"]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        compose(words)
    keys = {p.key for p in caught.value.problems}
    assert {"seed", "dataset.limit", "judge.threshold", "scoring.level", "transport.kind", "embedder.kind",
            "metrics.retrieval.kk", "nonsense", "store.path"} <= keys  # fmt: skip


def test_the_last_to_set_a_key_is_named(here: Path) -> None:
    chosen = "defaults:\n  - override /dataset: mine\n  - override /metrics: [retrieval]\n"
    for name, text in {"experiment/x": f"{chosen}judge:\n  threshold: 0\n", "mode/top": "judge:\n\n  threshold: -5\n"}.items():
        (here / f"conf/{name}.yaml").parent.mkdir()
        (here / f"conf/{name}.yaml").write_text(f"# @package _global_\n# mine\n{text}")
    for words, where in (
        (["+experiment=x", "+mode=top"], "conf/mode/top.yaml:5"),
        (["+experiment=x", "+mode=top", "judge.threshold=-9"], "command line (judge.threshold=-9)"),
    ):
        with pytest.raises(ConfigError) as caught:
            compose(words)
        assert [p.where for p in caught.value.problems if p.key == "judge.threshold"] == [where]


@pytest.mark.parametrize("task", sorted(registry.names("task")))
def test_the_help_of_a_task_says_what_it_does_and_names_its_keys(here: Path, task: str, capfd: pytest.CaptureFixture[str]) -> None:
    out = output_of([f"task={task}", "--help"], 0, capfd).out
    assert out.startswith(f"task={task}\n")
    assert f"Use: python -m ragpipe {'+experiment=' if task == 'evaluate' else f'task={task}'}" in out
    assert "yaml-language-server" not in out
    keys = task_keys()[task]
    own = set(setting_keys(keys)) - {"output_dir", "name", "publish"} if keys else set()  # those are keys of every run
    assert own <= set(re.findall(r"^  (\w+):", out, re.MULTILINE))


def test_the_help_is_one_screen_and_names_every_task(capfd: pytest.CaptureFixture[str]) -> None:
    lines = output_of(["--help"], 0, capfd).out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    named = {name for line in lines if line.startswith("  ") for name in re.split(r", |\s+", line[19:33].strip())}
    assert set(registry.own_names("task")) <= named


@pytest.mark.parametrize("words", [["-V"], ["--version"], ["--version", "+experiment=quickstart"]])
def test_the_version_is_printed_and_nothing_else(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert output_of(words, 0, capfd).out == f"ragpipe {ragpipe.__version__}\n"


@pytest.mark.parametrize(("code", "also"), [
    ("import ragpipe", ()), ("from ragpipe.cli.command_line import main; main(['--help'])", ("rich", "yaml")),
])  # fmt: skip
def test_a_start_takes_nothing_heavy_along(code: str, also: tuple[str, ...]) -> None:
    heavy = ("hydra", "pydantic", "pandas", "pyarrow", "litellm", *also)
    code = f"import sys; {code}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")


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


@pytest.mark.parametrize("value", ["sk-abcdefghijklmnop1234", "not a name", "hunter2:x"])
def test_a_value_of_a_header_in_a_mapping_is_refused(here: Path, value: str, capfd: pytest.CaptureFixture[str]) -> None:
    err = output_of(["system=http", f"system.headers_env={{X-Tenant: X_TENANT, Authorization: {value}}}"], 2, capfd).err
    assert "system.headers_env" in err
    assert value not in err


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


@pytest.mark.thorough(tried=20)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_refused_before_anything(case: Broken, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, text in case.files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = _tree(here)
    out, err = output_of(case.words, 2, capfd)
    assert [text for text in (*case.says, "found:", "expected:") if text not in err] == [], err
    assert [text for text in (*case.hides, "Traceback") if text in out + err] == []
    assert _tree(here) == before


SHIPPED = (prompts_dir() / "faithfulness" / "combined.v2.jinja").read_text(encoding="utf-8")
TEMPLATE = Path("mine/faithfulness/combined.v3.jinja")
MISTAKES = [  # what is replaced and by what, words of the message, the text of the line that it must name
    ({"answer: text": "answer: txt"}, "the role 'txt' of answer", "answer: txt"),
    ({"[[user]]": "[[usr]]"}, "the block [[usr]]", "[[usr]]"),
    ({"  answer: text\n": "  answer: text\n  reference: reference\n", "{{ answer }}": "{{ answer }}\n{{ reference }}"},
     "the variable reference, which the step does not give", "{{ reference }}"),
    ({"  question: question\n": "  query: question\n", "{{ question }}": "{{ query }}"}, "['question'], which the step gives", "roles:"),
    ({'"verdict" (': "a verdict ("}, "keys of the reply without verdict", "Reply with a JSON object"),
    ({"QuotedClaims": "QuotedClaim"}, "answer_type: QuotedClaim", "answer_type: QuotedClaim"),
    ({"optional:": "options:"}, "front matter", "---"),
]  # fmt: skip


def started(text: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    monkeypatch.chdir(here)
    TEMPLATE.parent.mkdir(parents=True)
    TEMPLATE.write_text(text, encoding="utf-8")
    with serving() as server:
        words = arguments(write_cases(here / "cases.jsonl", 2), here / "outputs", server.url, metrics="faithfulness")
        mine = ["metrics.faithfulness.steps=combined", "metrics.faithfulness.prompts.combined=v3", "prompt_dirs=[mine]"]
        return main([*words, *mine]), server.tries


@pytest.mark.thorough(tried=4)
@pytest.mark.parametrize(("changes", "said", "at"), MISTAKES)
def test_a_mistake_is_refused_with_its_line_before_anything_is_asked(changes, said, at, tmp_path, monkeypatch, capfd) -> None:
    text = SHIPPED
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    assert started(text, tmp_path, monkeypatch) == (2, 0)
    error = capfd.readouterr().err
    assert any(f"{TEMPLATE}:{number}" in error for number, line in enumerate(text.splitlines(), 1) if at in line), error
    assert said in error


def test_a_correct_template_of_ones_own_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(SHIPPED.replace("Task: list", "Task: carefully list"), tmp_path, monkeypatch) == (0, 2)
