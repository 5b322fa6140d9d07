"""The key is in no file, no name and no line of output, whatever happens to a run; and one that is typed is refused."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ragpipe.cli import main
from tests.support.checks import Bench, places_of
from tests.support.harness import start
from tests.support.waiting import HANGS_AFTER_S

Make = Callable[..., Bench]
SENTINEL = "Zq7-plain-words-no-shape-91"  # looks like no provider's key: only its variable tells that it is one
VARIABLE = "RAGPIPE_TEST_KEY"


@pytest.fixture
def keyed(bench: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    def make(**options: object) -> Bench:
        made = bench(**options)
        monkeypatch.setenv(VARIABLE, SENTINEL)
        return made

    return make


def _shown(words: list[str]) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        return main(words), out.getvalue()


FAILING = [
    "401",
    "403:after=5",
    "400:match=zebra",
    "500:match=zebra",
    "reset:match=zebra",
    f"other_model:name={SENTINEL}",
]


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("log_level", ["warning", pytest.param("debug", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_no_run_leaves_the_key_anywhere(keyed: Make, log_level: str) -> None:
    """Good and failing runs, one that echoes the key in its errors, its model's name and its replies."""
    b = keyed(cases=8, zebras=(2,))
    for fault in FAILING:
        b.fault(fault)
        ran = b.run("judge.retries=0", f"log_level={log_level}", f"name={fault.split(':')[0]}")
        assert SENTINEL not in ran.text, fault
    b.fault()
    b.server.script = [{"match": "zebra", "reply": f'{{"claims": ["the key is {SENTINEL}"]}}', "times": 1}]
    ran = b.run(f"log_level={log_level}", "judge.season=echo")
    assert ran.code == 0
    assert SENTINEL not in ran.text
    assert any(r["sample_id"] == "q00002" and "the key is" in (r["reply"] or "") for r in ran.rows("judge_inputs"))
    assert places_of(b.folder, SENTINEL) == []
    assert len({r["auth"] for r in b.server.log}) == 1, "the key did go over the wire"


@pytest.mark.slow
def test_no_other_command_leaves_the_key_anywhere(keyed: Make) -> None:
    b = keyed(cases=4)
    words = b.args()
    for command, expected in [
        (["--cfg", "job", "--resolve", *words], 0),
        (["--cfg", "all", *words, "judge.season=${oc.env:" + VARIABLE + "}", "--resolve"], 0),
        (["--info", "all", *words], 0),
        (["task=plan", *words], 0),
        (["task=init", "dir=my"], 0),
        (["-m", *words, "scoring.thresholds.faithfulness=0.5,0.9"], 0),
        ([*words, "judge.season=${oc.env:" + VARIABLE + "}"], 2),
        ([*words, f"judge.season={SENTINEL}"], 2),
        ([*words, f"name={SENTINEL}"], 2),
        ([*words, f"+judge.api_key={SENTINEL}"], 2),
        ([*words, f"judge.api_key_env={SENTINEL}"], 2),
        ([*words, f"judge.api_base=http://user:{SENTINEL}@127.0.0.1/v1"], 2),
        (["-m", *words, f"judge.season=a,{SENTINEL}"], 2),
    ]:
        code, text = _shown(command)
        assert SENTINEL not in text, command
        assert code == expected, text
        assert places_of(b.folder, SENTINEL) == [], command


@pytest.mark.thorough(tried=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["api_key: {key}", "api_key_env: {key}", "season: {key}", "api_base: 'http://127.0.0.1:1/v1?api_key={key}'"]
)
def test_a_key_in_a_file_is_refused_without_being_repeated(keyed: Make, line: str) -> None:
    b = keyed(cases=4)
    key = "sk-typed-into-a-file-0123456789abcdef"
    folder = b.folder / "conf" / "judge"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("defaults:\n  - llm\n  - _self_\n" + line.format(key=key) + "\n")
    before = {str(p) for p in b.folder.rglob("*")}
    code, text = _shown(
        [w.replace("judge=llm", "judge=mine") for w in b.args() if "api_key_env" not in w and "api_base" not in w]
    )
    assert code == 2, text
    assert key not in text
    assert "mine.yaml" in text
    assert {str(p) for p in b.folder.rglob("*")} == before, "nothing is written"
    assert b.server.log == []


@pytest.mark.thorough
@pytest.mark.slow
def test_the_other_client_keeps_the_key_to_itself(keyed: Make) -> None:
    b = keyed(cases=6, zebras=(2,))
    b.options = ["judge.client=litellm", "judge.retries=0", "log_level=debug"]
    for fault in FAILING:
        b.fault(fault)
        process = start(b.args(f"name={fault.split(':')[0]}"), b.folder)
        text, _ = process.communicate(timeout=HANGS_AFTER_S)
        assert SENTINEL not in text, fault
    assert places_of(b.folder, SENTINEL) == []


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    """The check itself: a text in a compressed Parquet column is no match of its bytes, and is found all the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [f"x{SENTINEL}y" * 3, "漢"]}), tmp_path / "t.parquet", compression="zstd")
    (tmp_path / f"f-{SENTINEL}").write_text("nothing")
    assert len(places_of(tmp_path, SENTINEL)) == 2
