"""Scores that servers of MLflow and Phoenix take beside the traces they hold. Both run here, on a free port, over SQLite in a folder."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_server import serving
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.frameworks]

TRACES = {"0af7651916cd43dd8448eb211c80319c": "b7ad6b7169203331", "4bf92f3577b34da6a3ce929d0e0e4736": "c7ad6b7169203332"}
"""Root spans by trace."""
EXPLANATIONS = {"b7ad6b7169203331": "1 of 1 claims are supported", "c7ad6b7169203332": "0 of 1 claims are supported"}
SUPPORTED = {"b7ad6b7169203331": 1.0, "c7ad6b7169203332": 0.0}
ANSWERS = {"b7ad6b7169203331": "Ada wrote it in 1843.", "c7ad6b7169203332": "Grace Hopper invented compilers."}


def span(trace, span_id, kind, attributes, **more):
    values = {"openinference.span.kind": kind, **attributes}
    return {
        "traceId": trace, "spanId": span_id, "name": kind.lower(), "kind": 1, "status": {"code": 1},
        "startTimeUnixNano": "1760000000000000000", "endTimeUnixNano": "1760000000400000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in values.items()], **more,
    }  # fmt: skip


def request():
    """A request of OTLP: two traces, each of a root and a retrieval."""
    found = {"retrieval.documents.0.document.id": "d1", "retrieval.documents.0.document.content": "Ada wrote it in 1843."}
    spans = []
    for trace, root in TRACES.items():
        spans.append(span(trace, root, "CHAIN", {"input.value": "Who wrote it?", "output.value": ANSWERS[root]}))
        spans.append(span(trace, root[:-1] + "f", "RETRIEVER", found, parentSpanId=root))
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {"name": "test"}, "spans": spans}]}]}


@contextmanager
def server(command, url, folder, **variables):
    """The address of a server from when its page of health answers; it and its workers end with the test."""
    log = folder / "server.log"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_PROXY": "127.0.0.1", **variables}
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True)

    def answers():
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        try:
            return httpx.get(url, timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(answers)
        yield url.rsplit("/", 1)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    with pytest.MonkeyPatch.context() as patch:  # this process is a client
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        pytest.importorskip("mlflow", reason="needs mlflow (the extra dev-frameworks)")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--default-artifact-root", str(folder / "artifacts")]
    with server(command, f"http://127.0.0.1:{port}/health", folder, MLFLOW_DISABLE_TELEMETRY="true") as url:
        sent = httpx.post(f"{url}/v1/traces", json=request(), headers={"x-mlflow-experiment-id": "0"}, timeout=120)
        assert sent.status_code == 200, sent.text
        yield url


@pytest.fixture(scope="module")
def phoenix_server(tmp_path_factory):
    pytest.importorskip("phoenix.server", reason="needs arize-phoenix (the extra dev-frameworks)")
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    folder = tmp_path_factory.mktemp("phoenix")
    variables = {
        "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(free_port()), "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false", "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }  # fmt: skip
    address = f"http://127.0.0.1:{variables['PHOENIX_PORT']}/healthz"
    with server([sys.executable, "-m", "phoenix.server.main", "serve"], address, folder, **variables) as url:
        body = request()
        for each in body["resourceSpans"][0]["scopeSpans"][0]["spans"]:  # protobuf reads bytes as base64, OTLP/JSON has hex
            for name in {"traceId", "spanId", "parentSpanId"} & each.keys():
                each[name] = base64.b64encode(bytes.fromhex(each[name])).decode()
        content = ParseDict(body, ExportTraceServiceRequest()).SerializeToString()
        sent = httpx.post(f"{url}/v1/traces", content=content, headers={"Content-Type": "application/x-protobuf"}, timeout=120)
        assert sent.status_code == 200, sent.text
        yield url


@pytest.fixture
def export(here, monkeypatch):
    """The folder of files of a run over traces, judged by the rules judge where no other is named."""
    monkeypatch.setenv("RAGPIPE_TEST_KEY", "local")
    Path("spans.jsonl").write_text(json.dumps(request()) + "\n", encoding="utf-8")

    def exported(dataset, path, *judge, code=0):
        options = ["metrics=[faithfulness]", "report.formats=[]", *(judge or ["judge=rules"])]
        assert main([f"dataset={dataset}", f"dataset.path={path}", *options]) == code
        assert main(["task=export", "run=run", "formats=[mlflow,phoenix]", "dir=scores"]) == 0
        return here / "scores"

    return exported


def failing(api_base):
    """A judge whose replies cannot be read."""
    return [
        "judge=llm", "judge.model=openai/test-2026-01-01", f"judge.api_base={api_base}", "judge.endpoint=test",
        "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.retries=0",
    ]  # fmt: skip


@pytest.fixture
def mlflow(mlflow_server):
    """The client, which speaks to the server and forgets it afterwards."""
    import mlflow

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow.set_tracking_uri(mlflow_server)
        yield mlflow
    mlflow.set_tracking_uri(None)


def imported_by_mlflow(mlflow, file):
    """What the server holds on each trace after the file was logged as docs/extras/traces.md says, without what it held before."""
    from mlflow.entities import Assessment

    before = {a.assessment_id for trace in TRACES for a in mlflow.get_trace(f"tr-{trace}").info.assessments}
    for line in file.read_text(encoding="utf-8").splitlines():
        assessment = Assessment.from_dictionary(json.loads(line))
        mlflow.log_assessment(trace_id=assessment.trace_id, assessment=assessment)
    held = {trace: mlflow.get_trace(f"tr-{trace}").info.assessments for trace in TRACES}
    return {trace: [a for a in assessments if a.assessment_id not in before] for trace, assessments in held.items()}


@pytest.mark.parametrize("dataset", ["openinference", "mlflow"])
def test_mlflow_shows_scores_beside_their_traces(mlflow, export, dataset):
    if dataset == "mlflow":
        traces = mlflow.search_traces(locations=["0"], return_type="list")
        Path("traces.jsonl").write_text("".join(trace.to_json() + "\n" for trace in traces), encoding="utf-8")
    folder = export(dataset, "traces.jsonl" if dataset == "mlflow" else "spans.jsonl")
    for trace, assessments in imported_by_mlflow(mlflow, folder / "mlflow.jsonl").items():
        root = TRACES[trace]
        assert {(a.name, a.value, a.rationale, a.span_id) for a in assessments} == {
            ("faithfulness", SUPPORTED[root], EXPLANATIONS[root], root), ("overall_score", SUPPORTED[root], None, root),
        }  # fmt: skip
        assert {(a.source.source_type, a.source.source_id) for a in assessments} == {("CODE", "rules-v1")}
        assert {(a.metadata["method"], a.metadata["iteration"]) for a in assessments} == {("default", "1")}


def test_mlflow_shows_a_failed_judging_as_an_error(mlflow, export):
    with serving(faults=["not_json"]) as judge:
        folder = export("openinference", "spans.jsonl", *failing(judge.url), code=4)
    for assessments in imported_by_mlflow(mlflow, folder / "mlflow.jsonl").values():
        (failed,) = assessments
        assert (failed.name, failed.value, failed.source.source_type) == ("faithfulness", None, "LLM_JUDGE")
        assert failed.feedback.error.error_code == "evaluation_failed"
        assert failed.feedback.error.error_message == failed.rationale


def annotations(client):
    """The annotations of the root spans by their identifiers."""
    held = client.spans.get_span_annotations(span_ids=list(TRACES.values()), project_identifier="default", limit=1000)
    return {(each["span_id"], each["identifier"]): each for each in held}


@pytest.mark.parametrize("dataset", ["openinference", "phoenix"])
def test_phoenix_shows_scores_beside_their_spans(phoenix_server, export, dataset):
    from phoenix.client import Client

    client = Client(base_url=phoenix_server)
    spans = wait_until(lambda: (found := client.spans.get_spans(project_identifier="default")) and len(found) == 4 and found)
    Path("phoenix.jsonl").write_text("".join(json.dumps(each) + "\n" for each in spans), encoding="utf-8")
    folder = export(dataset, "phoenix.jsonl" if dataset == "phoenix" else "spans.jsonl")
    body, before = (folder / "phoenix.json").read_bytes(), annotations(client)
    headers = {"Content-Type": "application/json"}
    sent = httpx.post(f"{phoenix_server}/v1/span_annotations", params={"sync": "true"}, content=body, headers=headers, timeout=120)
    assert sent.status_code == 200, sent.text
    first = annotations(client)
    client.spans.log_span_annotations(span_annotations=json.loads(body)["data"], sync=True)
    assert {key: each["id"] for key, each in annotations(client).items()} == {key: each["id"] for key, each in first.items()}
    new = [each for key, each in first.items() if key not in before]
    assert sorted((each["span_id"], each["name"], *each["result"].values()) for each in new if each["result"]["explanation"]) == [
        (root, "faithfulness", "pass" if value else "fail", value, EXPLANATIONS[root]) for root, value in SUPPORTED.items()
    ]
    assert {(each["span_id"], each["result"]["score"]) for each in new if each["name"] == "overall_score"} == set(SUPPORTED.items())
    assert {(each["annotator_kind"], each["metadata"]["judge"]) for each in new} == {("CODE", "rules-v1")}


def test_phoenix_shows_why_a_judging_failed(phoenix_server, export):
    from phoenix.client import Client

    client = Client(base_url=phoenix_server)
    with serving(faults=["not_json"]) as judge:
        folder = export("openinference", "spans.jsonl", *failing(judge.url), code=4)
    before, data = annotations(client), json.loads((folder / "phoenix.json").read_text(encoding="utf-8"))["data"]
    client.spans.log_span_annotations(span_annotations=data, sync=True)
    new = [each for key, each in annotations(client).items() if key not in before]
    assert {(each["span_id"], each["name"], each["annotator_kind"]) for each in new} == {
        (root, "faithfulness", "LLM") for root in SUPPORTED
    }
    assert all(each["result"]["score"] is None and each["result"]["explanation"] for each in new)
