"""docs/ci/monitor.sh, and the lines of cron and systemd that start it."""

import configparser
import json
import re
import shutil
import subprocess
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.slow.ci.conftest import CI, Desk, Receiver

WORDS = ["dataset.sample=null", "metrics=[faithfulness]", "report.formats=[markdown]"]
WORDS += [f"scoring.gates.{name}=null" for name in ("context_relevance", "answer_relevance", "citation", "source_policy")]


def write_log(path: Path, *, good: int) -> None:
    source = "The order {0} was sent to the northern warehouse in spring."
    answers = [source if number < good else "Elephants {0} paint bright violet ceilings." for number in range(30)]
    lines = [
        {"id": f"q{number}", "question": f"Where was order {number} sent?", "answer": answer.format(number),
         "contexts": [source.format(number)]}
        for number, answer in enumerate(answers)
    ]  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def monitored(desk: Desk) -> Desk:
    shutil.copy(CI / "monitor.sh", desk.folder)
    return desk


def monitor(desk: Desk, log: str = "logs/day.jsonl", **env: str) -> subprocess.CompletedProcess[str]:
    return desk.shell(["sh", "monitor.sh", log, *WORDS], **env)


@pytest.mark.thorough
def test_new_alerts_are_posted_once(monitored: Desk, receiver: Receiver) -> None:
    """All is well: nothing is posted. A bad day: its alerts. A post that fails: again the next time, with what came since."""
    log, alerts = monitored.folder / "logs/day.jsonl", monitored.folder / "outputs/alerts.jsonl"
    write_log(log, good=30)
    done = monitor(monitored, ALERT_URL=receiver.url)
    assert (done.returncode, receiver.posts) == (0, []), done.stderr
    write_log(log, good=10)
    receiver.status = 503
    assert monitor(monitored, ALERT_URL=receiver.url).returncode == 22, "curl's code for a refused post"
    receiver.status, receiver.posts[:] = 200, []
    assert monitor(monitored, ALERT_URL=receiver.url).returncode == 0
    ((_, headers, body),) = receiver.posts
    assert headers["Content-Type"] == "application/x-ndjson"
    assert body == alerts.read_text()
    assert {json.loads(line)["alert"] for line in body.splitlines()} == {"gate", "drop", "rise"}
    assert monitor(monitored, ALERT_URL=receiver.url).returncode == 0
    assert len(receiver.posts) == 1


@pytest.mark.thorough(tried=2)
@pytest.mark.parametrize(
    ("codes", "starts", "code"), [((4, 0), 2, 0), ((4, 4), 2, 4), ((3,), 1, 3), ((5,), 1, 5), ((6,), 1, 6), ((2,), 1, 2)]
)
def test_only_missing_answers_are_asked_for_again(monitored: Desk, codes: tuple[int, ...], starts: int, code: int) -> None:
    monitored.exit_codes(*codes)
    assert monitor(monitored).returncode == code
    assert monitored.started() == starts
    assert (monitored.folder / "outputs/monitored.txt").read_text().endswith(f"exit code {code} logs/day.jsonl\n")


def test_monitoring_that_fails_is_an_alert(monitored: Desk, receiver: Receiver) -> None:
    """A log that is not there: one line in the file of alerts, which is posted, and one on stderr, which cron mails."""
    done = monitor(monitored, 'logs/no "such".jsonl', ALERT_URL=receiver.url)
    said = 'monitoring itself failed: exit code 2 for logs/no "such".jsonl; this log was not evaluated to its end'
    assert (done.returncode, done.stderr) == (2, said + "\n")
    (line,) = (monitored.folder / "outputs/alerts.jsonl").read_text().splitlines()
    alert = json.loads(line)
    assert (alert["alert"], alert["exit_code"], alert["message"]) == ("monitoring", 2, said)
    assert [json.loads(body) for _, _, body in receiver.posts] == [alert]


def test_a_healthy_day_has_nothing_for_cron_to_mail(monitored: Desk) -> None:
    write_log(monitored.folder / "logs/day.jsonl", good=30)
    done = monitor(monitored)
    assert (done.returncode, done.stderr) == (0, "")
    assert (monitored.folder / "outputs/alerts.jsonl").read_text() == ""


def test_alerts_of_a_rotated_file_are_posted(monitored: Desk, receiver: Receiver) -> None:
    (monitored.folder / "outputs").mkdir()
    (monitored.folder / "outputs/alerts.posted").write_text("7\n")
    (monitored.folder / "outputs/alerts.jsonl").write_text('{"alert": "gate"}\n')
    monitored.exit_codes(0)
    assert monitor(monitored, ALERT_URL=receiver.url).returncode == 0
    assert [body for _, _, body in receiver.posts] == ['{"alert": "gate"}\n']


def test_the_lines_of_cron_and_systemd_start_it_with_the_log_of_yesterday(monitored: Desk) -> None:
    yesterday = f"logs/{date.today() - timedelta(days=1)}.jsonl"
    (monitored.folder / "environment").write_text("export OPENAI_API_KEY=sk-test\n")
    crontab = (CI / "crontab").read_text()
    (line,) = (line for line in crontab.splitlines() if "monitor.sh" in line and not line.startswith("#"))
    schedule, command = re.fullmatch(r"(\S+ \S+ \S+ \S+ \S+)\s+(.*)", line).groups()  # type: ignore[union-attr]
    assert schedule == "15 6 * * *"
    unit = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(CI / "ragpipe-monitoring.service")
    systemd = re.fullmatch(r"/bin/sh -c '(.*)'", unit["Service"]["ExecStart"])
    assert systemd
    for words in (command.replace("\\%", "%"), systemd[1].replace("$$", "$").replace("%%", "%")):
        monitored.exit_codes(0)
        done = monitored.shell(["sh", "-c", words.replace("/srv/monitoring/venv/bin:", "").replace("/srv/monitoring", ".")])
        assert done.returncode == 0, done.stderr
        last = (monitored.folder / "bin/starts").read_text().splitlines()[-1]
        assert f"dataset.path={yesterday} +mode=monitoring judge=llm judge.model=" in last
    assert (monitored.folder / "monitor.log").read_text() == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_units_are_valid(tmp_path: Path) -> None:
    for name in ("ragpipe-monitoring.service", "ragpipe-monitoring.timer"):
        shutil.copy(CI / name, tmp_path)
    done = subprocess.run(["systemd-analyze", "verify", str(tmp_path / "ragpipe-monitoring.timer")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
