"""The judge stage over a scripted transport: order, resuming, bugs, stops."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from ragpipe.core.call import Call, Paid
from ragpipe.core.errors import DataError, Interrupted, OutputError, ProviderUnusable, RagpipeError, Skipped
from ragpipe.core.sample import Case, Chunk, Output, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.judge.answers import Claims, YesNo
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.question import Question, Transport
from ragpipe.judge.session import JudgeSession
from ragpipe.metrics.base import Computed, Metric, Need
from ragpipe.runs import judge_cases as stage_module
from ragpipe.runs import load_dataset
from ragpipe.runs.case_measuring import CaseMeasuring, MetricBug
from ragpipe.runs.judge_cases import JudgeStage
from ragpipe.runs.measured_cases import CaseReader
from ragpipe.store.call_store import CallStore
from ragpipe.store.journal import HEADER, Journal
from ragpipe.store.progress import ProgressView
from ragpipe.store.run_folder import RunFolder
from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
TEMPLATE = "---\nroles: {text: text}\noptional: {turn: 1}\n---\n[[user]]\n{{ text }}\n{{ turn }}\n"


class TwoSteps(Metric):
    """Claims, then one YES or NO a claim, together: a fan-out."""

    needs: ClassVar[frozenset[Need]] = frozenset({"answer"})
    ask: Prompt

    async def measure(self, case: Case, judge: Any) -> Score:
        claims = await judge(self.ask, Claims, text=case.answer)
        answers = await asyncio.gather(*(judge(self.ask, YesNo, text=c) for c in claims.claims))
        return Score(sum(a.yes for a in answers) / max(1, len(answers)), details={"claims": claims.claims})


class Length(Computed):
    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, None, None),)

    def compute(self, cases: Sequence[Case]) -> list[Score]:
        if any(case.answer == "boom" for case in cases):
            raise ZeroDivisionError("boom")
        return [Score(len(case.answer)) for case in cases]


class Scripted(Transport):
    """A transport that answers claims and YES, late and in any order; keeps the log of what it was asked."""

    def __init__(self, width: int = 4, seed: int = 0, statuses: dict[str, str] | None = None, limit: int | None = None):
        self.asked: list[str] = []
        self.in_flight = self.peak = 0
        self._slots, self._random = asyncio.Semaphore(width), random.Random(seed)
        self._statuses, self._limit = statuses or {}, limit

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        async with self._slots:
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            try:
                yield
            finally:
                self.in_flight -= 1

    async def ask(self, question: Question, paid: Paid) -> Call:
        if self._limit is not None and len(self.asked) >= self._limit:
            raise ProviderUnusable("dead")
        self.asked.append(question.key)
        await asyncio.sleep(self._random.random() / 200)
        text = question.payload.messages[-1]["content"]
        status = next((s for marker, s in self._statuses.items() if marker in text), "ok")
        reply = "YES." if question.answer is YesNo else json.dumps({"claims": [f"{text[-40:]} {i}" for i in range(3)]})
        return Call(
            question.key, question.payload.id, question.judge, status, text=reply, message="as scripted", tokens_in=5, tokens_out=1,
            paid_usd=0.5, answers=1,
        )  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    (tmp_path / "prompts" / "two").mkdir(parents=True)
    (tmp_path / "prompts" / "two" / "ask.v1.jinja").write_text(TEMPLATE)
    prompt = PromptLibrary([tmp_path / "prompts"]).load("two", "ask", "v1")
    folder = RunFolder(tmp_path / "run")
    folder.create()
    monkeypatch.setattr(load_dataset, "BLOCK", 8)
    return SimpleNamespace(path=tmp_path, folder=folder, metrics=[TwoSteps(name="two", ask=prompt), Length(name="length")])


def cases(bench: SimpleNamespace, answers: Sequence[str]) -> None:
    outputs = [Output(sample_id=f"s{i}", answer=answer, chunks=[Chunk(id="c", rank=1)]) for i, answer in enumerate(answers)]
    records = [SimpleNamespace(sample=Sample(id=output.sample_id, question="q"), output=output, where="") for output in outputs]
    load_dataset.load_dataset(records, samples=bench.folder.samples, outputs=bench.folder.outputs)


async def judge(
    bench: SimpleNamespace, transport: Scripted, *, store: str = "calls.sqlite", iteration: int = 1, **options: Any
) -> JudgeStage:
    reader = CaseReader(bench.folder.samples, bench.folder.outputs, iteration)
    calls = CallStore(bench.path / store, run_id="r")
    session = JudgeSession(identity={"model": "m"}, label="m", transport=transport, store=calls)
    folder = bench.folder.iteration(iteration)
    folder.create()
    measuring = CaseMeasuring(bench.metrics, session, on_metric_error=options.pop("on_metric_error", "stop"))
    stage = JudgeStage(cases=reader, measuring=measuring, session=session, folder=folder, window=6, **options)
    try:
        await stage.run()
    finally:
        calls.close()
        reader.close()
    return stage


def scores(bench: SimpleNamespace, iteration: int = 1) -> list[dict[str, Any]]:
    return pq.read_table(bench.folder.iteration(iteration).scores).to_pylist()


ANSWERS = [f"answer number {i}" for i in range(20)]


async def test_rows_stand_in_data_order_whatever_came_back_first(bench: SimpleNamespace) -> None:
    cases(bench, ANSWERS)
    await judge(bench, transport := Scripted(seed=1))
    first = [bench.folder.iteration(1).scores.read_bytes(), pq.read_table(bench.folder.iteration(1).judge_inputs).to_pylist()]
    assert [(r["sample_id"], r["score_name"]) for r in scores(bench)] == [(f"s{i}", n) for i in range(20) for n in ("two", "length")]
    assert len(transport.asked) == len(set(transport.asked)) == 80
    assert transport.peak == 4
    for path in (bench.folder.iteration(1).scores, bench.folder.iteration(1).judge_inputs):
        path.unlink()
    await judge(bench, other := Scripted(seed=2, width=1), store="other.sqlite")
    assert len(other.asked) == 80
    assert [bench.folder.iteration(1).scores.read_bytes(), pq.read_table(bench.folder.iteration(1).judge_inputs).to_pylist()] == first


async def test_a_dead_provider_ends_the_run_and_a_second_start_asks_only_the_rest(bench: SimpleNamespace) -> None:
    cases(bench, ANSWERS)
    with pytest.raises(ProviderUnusable):
        await judge(bench, first := Scripted(limit=30))
    assert len(first.asked) == 30
    await judge(bench, second := Scripted())
    assert set(first.asked).isdisjoint(second.asked)
    assert len(second.asked) == 50


async def test_stopping_lets_what_is_in_flight_land(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    cases(bench, ANSWERS)
    transport, asked_at_stop, stages, start = Scripted(), [], [], JudgeStage.run

    def stop_after_three(state: Any) -> None:
        if state.done == 3:
            asked_at_stop.append(len(transport.asked))
            stages[0].stop(Interrupted("now"))

    async def run(self: JudgeStage) -> Any:
        stages.append(self)
        return await start(self)

    monkeypatch.setattr(JudgeStage, "run", run)
    with pytest.raises(Interrupted):
        await judge(bench, transport, on_change=stop_after_three)
    assert len(transport.asked) <= asked_at_stop[0] + 4, "nothing new goes out after the stop"
    await judge(bench, second := Scripted())
    assert len(transport.asked) + len(second.asked) == 80


async def test_a_permanent_failure_is_not_asked_again_by_the_same_run_and_a_transient_one_is(bench: SimpleNamespace) -> None:
    cases(bench, ["permanent", "passing"])
    await judge(bench, first := Scripted(statuses={"permanent": "refused", "passing": "network"}))
    for path in (bench.folder.iteration(1).scores, bench.folder.iteration(1).judge_inputs):
        path.unlink()
    await judge(bench, second := Scripted())
    assert len(first.asked) == 2
    assert second.asked[0] == first.asked[1]
    assert first.asked[0] not in second.asked


class Impatient(TwoSteps):
    """Gives a question no time at all on one case, and cancels itself on another. Counts claims."""

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, None, None),)

    async def measure(self, case: Case, judge: Any) -> Score:
        if case.answer == "hasty":
            try:
                async with asyncio.timeout(0.0005):
                    await judge(self.ask, Claims, text=case.answer)
            except TimeoutError:
                raise Skipped("no_time") from None
        if case.answer == "self":
            asking = asyncio.ensure_future(judge(self.ask, Claims, text=case.answer))
            asyncio.get_running_loop().call_soon(asking.cancel)
            await asking
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(judge(self.ask, Claims, text=case.answer))
        return Score(len(asked.result().claims))


async def test_a_metric_that_gives_up_a_question_cancels_itself_alone(bench: SimpleNamespace) -> None:
    bench.metrics[0] = Impatient(name="two", ask=bench.metrics[0].ask)
    cases(bench, ["fine", "hasty", "self", "not given", "also fine"])
    transport = Scripted(statuses={"not given": "refused"})
    await judge(bench, transport, on_metric_error="record")
    rows = [(r["status"], (r["reason"] or "").partition(":")[0]) for r in scores(bench) if r["score_name"] == "two"]
    assert rows == [("ok", ""), ("skipped", "no_time"), ("error", "metric_error"), ("error", "refused"), ("ok", "")]
    assert len(transport.asked) == 5  # each flight landed
    await judge(bench, again := Scripted(), on_metric_error="record")
    assert again.asked == []


async def test_a_system_error_is_skipped_not_scored(bench: SimpleNamespace) -> None:
    records = [SimpleNamespace(sample=Sample(id="s", question="q"), output=Output(sample_id="s", error="timeout"), where="1")]
    load_dataset.load_dataset(records, samples=bench.folder.samples, outputs=bench.folder.outputs)
    await judge(bench, transport := Scripted())
    assert [(r["status"], r["reason"]) for r in scores(bench)] == [("skipped", "system_error")] * 2
    assert transport.asked == []


async def test_blocks_with_failures_are_done_again(bench: SimpleNamespace) -> None:
    cases(bench, ANSWERS)
    with pytest.raises(ProviderUnusable):  # the first block of eight is written, the run is not finished
        await judge(bench, first := Scripted(statuses={"number 2": "network"}, limit=60, width=1))
    assert (bench.folder.iteration(1).parts / "scores" / "part-000000.parquet").is_file()
    stage = await judge(bench, second := Scripted())
    rows = {r["sample_id"]: r["status"] for r in scores(bench) if r["score_name"] == "two"}
    assert (set(rows.values()), stage.state.transient) == ({"ok"}, 0)
    assert len(set(first.asked) & set(second.asked)) == 1, "only the question that failed goes out again"


async def test_a_finished_block_with_a_lasting_failure_is_done_again_when_errors_are_retried(bench: SimpleNamespace) -> None:
    cases(bench, ANSWERS)
    with pytest.raises(ProviderUnusable):  # the first block of eight is written, the run is not finished
        await judge(bench, Scripted(statuses={"number 2": "refused"}, limit=60, width=1))
    part = bench.folder.iteration(1).parts / "scores" / "part-000000.parquet"
    assert part.is_file()
    with pytest.raises(ProviderUnusable):
        await judge(bench, plain := Scripted(limit=0))
    assert not plain.asked
    await judge(bench, Scripted(), store="empty.sqlite", retry_errors=True)
    rows = {r["sample_id"]: r["status"] for r in scores(bench) if r["score_name"] == "two"}
    assert rows == {f"s{i}": "ok" for i in range(20)}


LINE = {"sample_id": "s0", "method": "default", "repeat": 1, "question": "q", "transient": False, "result": {"two": 1.0}}


@pytest.mark.parametrize(
    ("name", "value"),
    [("result", None), ("result", [1]), ("sample_id", 7), ("method", None), ("question", None), ("transient", "no"), ("repeat", True)],
)
async def test_a_journal_edited_by_hand_is_refused_with_its_line(bench: SimpleNamespace, name: str, value: object) -> None:
    cases(bench, ANSWERS)
    good = {**LINE, "completed_at": "2026-01-01T00:00:00+00:00"}
    bad = {key: found for key, found in {**good, name: value}.items() if found is not None}
    journal = bench.folder.iteration(1).create().journal
    journal.write_bytes(HEADER + "".join(json.dumps(line) + "\n" for line in (good, bad)).encode())
    with pytest.raises(DataError) as found:
        await judge(bench, untouched := Scripted())
    assert [(p.where, p.key) for p in found.value.problems] == [(f"{journal}:3", name)]
    assert not untouched.asked


async def test_a_stop_ends_the_run_while_it_waits_for_slow_blocks(bench: SimpleNamespace) -> None:
    """Three blocks are held open by one slow case each, nothing else is left to do: the fourth must not wait for ever."""
    cases(bench, [f"{'slow' if i % 8 == 0 else 'answer'} number {i}" for i in range(32)])

    class Slow(Scripted):
        async def ask(self, question: Question, paid: Paid) -> Call:
            if "slow" in question.payload.messages[-1]["content"]:
                await asyncio.sleep(0.5)
                raise ProviderUnusable("dead")
            return await super().ask(question, paid)

    with pytest.raises(ProviderUnusable):
        await asyncio.wait_for(judge(bench, Slow(width=8)), HANGS_AFTER_S)


async def test_an_exception_outside_of_the_metrics_ends_the_run_too(bench: SimpleNamespace) -> None:
    """Nothing may be lost with a task: a run whose display fails must not look finished."""
    cases(bench, ["one", "two"])

    def broken(state: Any) -> None:
        raise TypeError("no such argument")

    with pytest.raises(RagpipeError, match=r"case s\d/default: TypeError: no such argument"):
        await judge(bench, Scripted(), on_change=broken)
    assert not bench.folder.iteration(1).scores.exists()


async def test_a_case_whose_line_found_no_room_is_done_again(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at one line, and room again for what comes after: the block must not stand without that case's line."""
    cases(bench, ANSWERS[:8])
    append, refused = Journal.append_all, []

    def full_once(self: Journal, entries: Iterable[dict[str, Any]]) -> None:
        lines = list(entries)
        if "s3" in [line["sample_id"] for line in lines] and not refused:
            refused.extend(lines)
            raise OutputError("the disk is full")
        append(self, lines)

    monkeypatch.setattr(Journal, "append_all", full_once)
    with pytest.raises(OutputError):
        await judge(bench, first := Scripted(width=32))
    folder = bench.folder.iteration(1)
    view = ProgressView(folder.progress, name="d", iteration=1, total=8)
    await judge(bench, second := Scripted(), view=view)
    assert not set(first.asked) & set(second.asked)
    assert sorted(lines(bench)) == [f"s{i}" for i in range(8)]
    assert json.loads(folder.progress.read_text())["statistics"]["completedQuestions"] == 8


def lines(bench: SimpleNamespace) -> list[str]:
    text = bench.folder.iteration(1).journal.read_text(encoding="utf-8")
    return [json.loads(line)["sample_id"] for line in text.splitlines()[1:]]


async def test_a_journal_that_was_moved_away_is_written_again(bench: SimpleNamespace) -> None:
    """Also for the blocks that are finished: its own error message says that its cases are then done again."""
    cases(bench, ANSWERS)
    with pytest.raises(ProviderUnusable):
        await judge(bench, first := Scripted(limit=60, width=1))
    assert (bench.folder.iteration(1).parts / "scores" / "part-000000.parquet").is_file()
    bench.folder.iteration(1).journal.unlink()
    await judge(bench, second := Scripted())
    assert not set(first.asked) & set(second.asked)
    assert sorted(lines(bench)) == sorted(f"s{i}" for i in range(20))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), OSError(24, "too many", "f")])
@pytest.mark.parametrize("how", ["record", "stop"])
async def test_what_the_machine_lacks_is_no_bug_of_a_metric(bench: SimpleNamespace, error: Exception, how: str) -> None:
    class Hungry(TwoSteps):
        async def measure(self, case: Case, judge: Any) -> Score:
            raise error

    cases(bench, ["one"])
    bench.metrics[0] = Hungry(name="two", ask=bench.metrics[0].ask)
    with pytest.raises(OutputError) as found:
        await judge(bench, Scripted(), on_metric_error=how)
    assert found.value.exit_code == 6
    assert not isinstance(found.value, MetricBug)


async def test_blocks_and_row_groups_do_not_change_what_is_in_them(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of a run hold the same rows however its cases were cut into blocks and its questions into row groups."""
    found = []
    for number, (block, group) in enumerate([(1000, 1 << 30), (3, 1), (8, 2000)], 1):
        monkeypatch.setattr(load_dataset, "BLOCK", block)
        monkeypatch.setattr(stage_module, "GROUP_BYTES", group)
        cases(bench, ANSWERS)
        await judge(bench, Scripted(seed=number), store=f"{number}.sqlite")
        inputs = pq.ParquetFile(bench.folder.iteration(1).judge_inputs)
        found.append((inputs.read().to_pylist(), scores(bench)))
        groups = [inputs.metadata.row_group(i).num_rows for i in range(inputs.num_row_groups)]
        assert groups == {1: [80], 2: [4] * 20}.get(number, groups), "one per block, or cut after each case"
        bench.folder.iteration(1).journal.unlink()
    assert found[0] == found[1] == found[2]
