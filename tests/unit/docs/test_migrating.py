"""The pages for those who come from another tool: every name of ours in them is a score, a metric or an option that exists."""

import re
from pathlib import Path

import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core.resources import conf_dir
from tests.unit.docs.test_names import rows

PAGES = ("migrating-from-ragas.md", "migrating-from-deepeval.md", "migrating-from-promptfoo.md")
_CODE = re.compile(r"`([^`]+)`")


@pytest.fixture(scope="module")
def scores() -> set[str]:
    chosen = [path.stem for path in sorted(Path(conf_dir(), "metrics").glob("*.yaml")) if path.stem != "recorded"]
    config = compose(["dataset=demo", f"metrics=[{','.join(chosen)}]"])
    return {spec.name.partition("@")[0] for metric in config.metrics.values() for spec in metric.scores()}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_metric_of_the_other_tool_leads_to_a_score_or_to_words(page: str, scores: set[str]) -> None:
    for there, here, remark in rows(page, "Metrics"):
        assert _CODE.findall(there), f"{page}: a row without a name"
        named = {name.partition("@")[0] for name in _CODE.findall(here)}
        assert named <= scores, f"{page}: {there} leads to {named - scores}"
        assert named or here == "-", f"{page}: {there}: neither a score nor -"
        assert remark, f"{page}: {there}: nothing is said of what differs"
