"""Which runs lie on the same side of an alarm, and where alarms are read."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragpipe.comparison.run_differences import DriftRecord, drift_differences, drift_file, known_alarms, reply_times
from ragpipe.core.errors import DataError
from ragpipe.core.version import FORMAT
from ragpipe.store.run_folder import RunFolder

JUDGE = {"model": "openai/m-2026-01-01", "endpoint": "", "sampling": {"temperature": 0.0}, "season": ""}
ALARM = ("2026-03-10T08:00", "2026-03-11T08:00")
BEFORE, DURING, AFTER = (("2026-03-09", "2026-03-10"), ("2026-03-10T12:00", "2026-03-10T13:00"), ("2026-03-12", "2026-03-13"))


def manifest(span: tuple[str, str], **noted: Any) -> dict[str, Any]:
    return {"identity": {"judge_identity": JUDGE}, "judge_drift": {"first": span[0], "last": span[1], **noted}}


def record(alarm: tuple[str, str]) -> DriftRecord:
    return DriftRecord("m", JUDGE, checks=[{"baseline": 1, "after": alarm[0], "ended_at": alarm[1], "alarm": True}])


@pytest.mark.parametrize(
    ("base", "candidate", "is_refused"),
    [
        (BEFORE, BEFORE, False),
        (AFTER, AFTER, False),
        (BEFORE, AFTER, True),
        (AFTER, BEFORE, True),
        (BEFORE, DURING, True),
        (DURING, AFTER, True),
        (DURING, DURING, True),
        ((BEFORE[0], AFTER[1]), AFTER, True),  # old replies beside new ones
        ((BEFORE[0], ALARM[0]), BEFORE, False),
        ((ALARM[1], AFTER[1]), AFTER, False),
    ],
)
def test_sides_of_an_alarm(base: tuple[str, str], candidate: tuple[str, str], is_refused: bool) -> None:
    runs = manifest(base), manifest(candidate)
    assert bool(drift_differences(*runs, [ALARM])) is is_refused
    assert drift_differences(*runs) == []
    noted = drift_differences(runs[0], manifest(candidate, alarms=[list(ALARM)]))
    assert [(difference.part, difference.key) for difference in noted] == [("judge", "judge.drift")] * is_refused


def test_what_is_held_against_the_dates_of_a_judge() -> None:
    other = {**manifest(AFTER), "identity": {"judge_identity": {**JUDGE, "season": "b"}}}
    assert drift_differences(manifest(BEFORE), other, [ALARM]) == []
    run = {"identity": {"judge_identity": JUDGE}, "created_at": BEFORE[0], "ended_at": BEFORE[1]}
    assert reply_times(run) == BEFORE
    assert reply_times({"created_at": BEFORE[0]}) == (BEFORE[0], BEFORE[0])
    assert drift_differences(run, manifest(BEFORE), [ALARM]) == []
    assert drift_differences(run, manifest(AFTER), [ALARM])


def test_alarms_are_read_beside_the_call_store_of_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "outputs" / "name" / "0123456789ab")
    folder.root.mkdir(parents=True)
    assert known_alarms(folder, manifest(BEFORE)) == []
    record(ALARM).write(drift_file(tmp_path / "outputs" / ".store", JUDGE))
    assert known_alarms(folder, manifest(BEFORE)) == [ALARM]
    record(("2026-05-01", "2026-05-02")).write(drift_file(tmp_path / "named", JUDGE))
    folder.config.write_text(f"store: {{path: {tmp_path / 'named'}}}")
    assert known_alarms(folder, manifest(BEFORE)) == [ALARM, ("2026-05-01", "2026-05-02")]
    drift_file(tmp_path / "named", JUDGE).write_text(json.dumps({"format": FORMAT, "judge": "m"}))
    with pytest.raises(DataError, match="a drift file cannot be read"):
        known_alarms(folder, manifest(BEFORE))
