"""task=synthesize with a model, killed with -9 twice: the replies that were stored are not asked for again."""

import json

import pytest

from tests.support.harness import Server, asked_again, committed, finish, kill_after

pytestmark = pytest.mark.slow


def test_no_reply_is_paid_twice(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"match": "Task: say the same", "reply": '{"question": "What?"}'}]), encoding="utf-8")
    kills: list[tuple[float, frozenset[str]]] = []
    with Server(tmp_path / "log.jsonl", ("--latency-ms", "150", "--script", str(script))) as server:
        words = [
            "task=synthesize", "synthesize.documents=package:handbook", "synthesize.dir=set", "synthesize.counts.policy=40",
            "synthesize.model=true", "judge=llm", "judge.model=openai/test-model-2026-01-01", f"judge.api_base={server.url}",
            "judge.endpoint=test", "judge.api_key_env=RAGPIPE_TEST_KEY", "judge.concurrency=4", "output_dir=out",
        ]  # fmt: skip
        for _ in range(2):
            moment = kill_after(words, tmp_path, server, calls=20)
            assert moment is not None
            kills.append((moment, committed(tmp_path / "out")))
        code, text = finish(words, tmp_path)
        assert code == 0, text
        assert [len(stored) > 0 for _, stored in kills] == [True, True]
        assert asked_again(server.requests(), kills) == []
        asked = len(server.requests())
        code, text = finish([*words, "synthesize.dir=again"], tmp_path)
        assert (code, len(server.requests())) == (0, asked), text
    assert (tmp_path / "set" / "cases.jsonl").read_bytes() == (tmp_path / "again" / "cases.jsonl").read_bytes()
