"""The files of docs/ci: workflows are valid by the schemas of their forges, and shell steps and scripts do what they say."""

import configparser
import importlib.util
import json
import re
import shutil
import subprocess
import urllib.parse
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

from ragpipe.core.resources import data_path
from tests.slow.ci.conftest import CI, Desk, Receiver

GITHUB, GITLAB = "github-actions.yml", "gitlab-ci.yml"
QUICK = "judge=rules\nmetrics=[retrieval,faithfulness,rejection_calibration]"
"""In the place of a paid judge and of all metrics."""
FILES = {"report.md", "report.html", "report.junit.xml", "gates.json"}


class Loader(yaml.SafeLoader):
    """YAML 1.2 as forges read it: `on` is a word and no truth value."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def workflow(name: str) -> dict[str, Any]:
    return yaml.load((CI / name).read_text(encoding="utf-8"), Loader)


@pytest.mark.parametrize(("name", "schema"), [(GITHUB, "github-workflows.json"), (GITLAB, "gitlab-ci.json")])
def test_the_forge_takes_the_file(name: str, schema: str) -> None:
    found = importlib.util.find_spec("check_jsonschema")
    if found is None or found.origin is None:
        pytest.skip("pip install check-jsonschema: it holds the schemas of the forges")
    vendored = Path(found.origin).parent / "builtin_schemas" / "vendor" / schema
    jsonschema.validate(workflow(name), json.loads(vendored.read_text(encoding="utf-8")))


def test_actions_are_pinned_and_versions_those_of_the_commit() -> None:
    steps = [step for job in workflow(GITHUB)["jobs"].values() for step in job["steps"]]
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w/-]+@[0-9a-f]{40}", step["uses"])
        assert "${{" not in step.get("run", ""), "an expression could put code into the script"
    lines = [line for line in (CI / GITHUB).read_text().splitlines() if "uses:" in line]
    assert all(re.search(r" # v\d+\.\d+\.\d+$", line) for line in lines)
    images = [job["image"] for job in workflow(GITLAB).values() if isinstance(job, dict) and "image" in job]
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-\w+", image) for image in images)
    # A job that is started again has the same: it asks nothing twice.
    assert workflow(GITHUB)["env"]["RAGPIPE_SYSTEM_VERSION"] == "${{ github.sha }}-${{ github.run_id }}"
    assert workflow(GITLAB)["variables"]["RAGPIPE_SYSTEM_VERSION"] == "$CI_COMMIT_SHORT_SHA-$CI_PIPELINE_ID"


@pytest.mark.parametrize("name", [GITHUB, GITLAB])
def test_replies_and_baseline_are_kept_under_a_key_of_the_version(name: str) -> None:
    if name == GITLAB:
        pip, kept = workflow(name)["full-evaluation"]["cache"]
        assert (kept["paths"], kept["key"]["files"]) == (["outputs"], ["eval/requirements.txt"])
        assert kept["when"] == "always"
        assert workflow(name)[".rag-evaluation"]["cache"] == pip, "a merge request reads and writes no baseline"
        assert "cache" not in workflow(name)["regression-gate"]
        return
    steps = workflow(name)["jobs"]["full-evaluation"]["steps"]
    restore, save = (step for step in steps if "actions/cache/" in step.get("uses", ""))
    for step in (restore, save):
        assert step["with"]["path"] == "outputs"
        assert "hashFiles('eval/requirements.txt')" in step["with"]["key"]
    assert restore["with"]["key"] == save["with"]["key"]
    assert "github.run_attempt" in save["with"]["key"], "a cache of the same key would not be written again"
    assert restore["with"]["key"].startswith(restore["with"]["restore-keys"])
    assert save["if"] == "always()", "also after exit code 3, 4 or 5"


MY_RAG = """
import json
from pathlib import Path

def answer(sample):
    index = json.loads(Path("index.json").read_text())
    with open("asked.log", "a") as log:
        log.write(sample["id"] + "\\n")
    return index[sample["question"]]
"""


def write_cases(desk: Desk, method: str) -> None:
    """The demonstration cases, a system that answers them as one of theirs did, and the files that the head of a workflow names."""
    lines, index = [], {}
    for line in data_path("package:demo/cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        (output,) = (output for output in case.pop("outputs") if output["method"] == method)
        lines.append(json.dumps(case) + "\n")
        index[case["question"]] = {key: output[key] for key in ("answer", "chunks", "abstained") if key in output}
    folder = desk.folder / "eval"
    folder.mkdir(exist_ok=True)
    (folder / "labeled.jsonl").write_text("".join(lines))
    (folder / "requirements.txt").write_text("# ragpipe is installed already\n")
    (desk.folder / "my_rag.py").write_text(MY_RAG)
    (desk.folder / "index.json").write_text(json.dumps(index))
    shutil.copy(CI / "evaluate.sh", folder)


def asked(desk: Desk) -> int:
    log = desk.folder / "asked.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def run_github(desk: Desk, job_name: str, **words: str) -> tuple[int, str, str]:
    """Runs the shell steps of a job as the runner does: `bash -e`, after a failure only `if: always()`. Returns the exit code of the step
    that failed, or 0, the summary of the job, and what was printed."""
    document = workflow(GITHUB)
    job, code, printed = document["jobs"][job_name], 0, ""
    summary = desk.folder / "summary.md"
    summary.write_text("")
    for step in job["steps"]:
        if "run" not in step or (code and step.get("if") != "always()"):
            continue
        secrets = {name: "sk-test" for name, value in step.get("env", {}).items() if "secrets." in value}
        forge = {"RAGPIPE_SYSTEM_VERSION": "0f3c-17"}
        env = {
            **document["env"], **forge, **step.get("env", {}), **secrets, **words, "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(summary),
        }  # fmt: skip
        done = desk.shell(["bash", "-e", "-c", step["run"]], **env)
        printed += done.stdout + done.stderr
        code = code or done.returncode
    return code, summary.read_text(), printed


def run_gitlab(desk: Desk, job_name: str, **env: str) -> tuple[int, str, str]:
    """The same for a job of GitLab: before_script and script in one shell, after_script in another, whatever happened before."""
    document = workflow(GITLAB)
    job = {**document[".rag-evaluation"], **document[job_name]}
    forge = {"RAGPIPE_SYSTEM_VERSION": "0f3c-17", "OPENAI_API_KEY": "sk-test"}
    shown = {**document["variables"], **job.get("variables", {}), **forge, "CI_PROJECT_DIR": str(desk.folder), "CI_PROJECT_ID": "7", **env}
    done = desk.shell(["bash", "-eo", "pipefail", "-c", "\n".join(job["before_script"] + job["script"])], **shown)
    after = desk.shell(["bash", "-eo", "pipefail", "-c", "\n".join(job.get("after_script", ["true"]))], **shown)
    assert after.returncode == 0, after.stderr
    return done.returncode, "", done.stdout + done.stderr


RUNNERS = {"github": run_github, "gitlab": run_gitlab}


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize("forge", RUNNERS)
def test_a_regression_gate_lets_a_good_version_pass_and_stops_a_bad_one(desk: Desk, receiver: Receiver, forge: str) -> None:
    write_cases(desk, "rerank")
    code, summary, printed = RUNNERS[forge](desk, "regression-gate")
    assert code == 0, printed
    report = desk.folder / "rag-report"
    assert {path.name for path in report.iterdir()} == FILES
    if forge == "github":
        assert summary == (report / "report.md").read_text()
    write_cases(desk, "baseline")
    note = {"RAG_NOTE_TOKEN": "glpat-test", "CI_API_V4_URL": receiver.url, "CI_MERGE_REQUEST_IID": "12"}
    note["RAGPIPE_SYSTEM_VERSION"] = "1a2b-18"  # of the next commit
    code, summary, printed = RUNNERS[forge](desk, "regression-gate", **note)
    assert code == 3
    assert "a critical gate blocks: the cases are in rag-report/report.html" in printed
    assert ("::error title=RAG evaluation::a critical gate" in printed) is (forge == "github")
    failed = ElementTree.parse(report / "report.junit.xml").findall(".//testcase[failure]")
    assert [case.get("name") for case in failed] == ["rejection_calibration"]
    if forge == "github":
        assert "## Gates" in summary
        return
    ((path, headers, body),) = receiver.posts
    assert (path, headers["PRIVATE-TOKEN"]) == ("/projects/7/merge_requests/12/notes", "glpat-test")
    assert urllib.parse.parse_qs(body)["body"] == [(report / "report.md").read_text()]


@pytest.mark.thorough
@pytest.mark.parametrize("forge", RUNNERS)
def test_a_full_evaluation_is_held_against_the_last_one_that_passed(desk: Desk, forge: str) -> None:
    """The folder stays, as the cache of a forge does. The system changes where no file of the repository does: an index. A second
    week asks it again, and blocks; so does the third, for the broken week is not the baseline of the next."""
    write_cases(desk, "rerank")
    weeks = [{"RAGPIPE_JUDGE": QUICK, "RAGPIPE_SYSTEM_VERSION": f"0f3c-{number}"} for number in (1, 2, 3)]
    code, _, printed = RUNNERS[forge](desk, "full-evaluation", **weeks[0])
    assert (code, asked(desk)) == (0, 40), printed
    assert "no baseline" in printed
    assert "> **Warning:** no baseline" in (desk.folder / "rag-report/report.md").read_text()
    first = (desk.folder / "outputs/full_evaluation/baseline.txt").read_text()
    write_cases(desk, "baseline")
    for week, questions in ((weeks[1], 80), (weeks[1], 80), (weeks[2], 120)):
        code, _, printed = RUNNERS[forge](desk, "full-evaluation", **week)
        assert (code, asked(desk)) == (3, questions), printed
        gates = json.loads((desk.folder / "rag-report/gates.json").read_text())["gates"]
        assert {gate["verdict"] for gate in gates} == {"failed"}
        assert {gate["against"] for gate in gates} == {first.strip()}
    assert (desk.folder / "outputs/full_evaluation/baseline.txt").read_text() == first


def evaluate(desk: Desk, *overrides: str, mode: str = "full_evaluation", **env: str) -> tuple[int, str]:
    done = desk.shell(["sh", "eval/evaluate.sh", mode, *overrides], **env)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.thorough
def test_recorded_answers_have_no_version_and_a_baseline(desk: Desk) -> None:
    write_cases(desk, "rerank")
    words = ["+experiment=demo_rerank", "metrics=[retrieval,rejection_calibration]", "name=weekly"]
    for week in (1, 2):
        code, printed = evaluate(desk, *words, RAGPIPE_SYSTEM_VERSION=f"week {week}")
        assert code == 0, printed
        assert ("no baseline" in printed) is (week == 1)
    assert "system.version" not in desk.last_start()
    assert (desk.folder / "rag-report/gates.json").is_file(), "of another name than that of the mode"


def test_a_lost_baseline_can_end_the_job(desk: Desk) -> None:
    write_cases(desk, "rerank")
    code, printed = evaluate(desk, "dataset=demo", RAGPIPE_NEEDS_BASELINE="1")
    assert (code, desk.started()) == (2, 0)
    assert "no baseline in outputs/full_evaluation: a drop cannot be seen" in printed


def test_overrides_are_one_a_line_and_their_values_may_hold_blanks(desk: Desk) -> None:
    write_cases(desk, "rerank")
    desk.exit_codes(0, 0)
    overrides = "# my cases\n  dataset=jsonl\n\ndataset.path=eval/my cases.jsonl\nsystem=http\nsystem.url=http://127.0.0.1:9/ask\n"
    evaluate(desk, mode="regression_gate", RAGPIPE_OVERRIDES=overrides, RAGPIPE_SYSTEM_VERSION="1e5")
    assert "ragpipe dataset=jsonl dataset.path=eval/my cases.jsonl system=http" in desk.last_start()
    assert desk.last_start().endswith("system.version='1e5'")
    evaluate(desk, "system.version=mine", mode="regression_gate", RAGPIPE_OVERRIDES=overrides)
    assert desk.last_start().count("system.version") == 1
    code, printed = evaluate(desk, "dataset=nowhere", mode="regression_gate")
    assert (code, desk.started()) == (2, 2)
    assert "nowhere" in printed


@pytest.mark.thorough(tried=1)
@pytest.mark.parametrize(("codes", "starts", "code", "words"), [
    ((4, 0), 2, 0, ""),
    ((4, 4), 2, 4, "too few judgements or answers came out, also at a second start"),
    ((2,), 1, 2, "the configuration or the data are wrong, nothing was asked"),
    ((5,), 1, 5, "infrastructure, not this change"),
    ((6,), 1, 6, "ragpipe ended with exit code 6"),
])  # fmt: skip
def test_exit_codes(desk: Desk, codes: tuple[int, ...], starts: int, code: int, words: str) -> None:
    write_cases(desk, "rerank")
    desk.exit_codes(*codes)
    done = desk.shell(["sh", "eval/evaluate.sh", "regression_gate", "dataset=demo"])
    assert (done.returncode, desk.started()) == (code, starts)
    assert words in done.stdout
    assert list((desk.folder / "rag-report").iterdir()) == [], "no report of an earlier run"


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
