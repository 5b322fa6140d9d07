"""Items listed against items possible, by hand counts of short lists."""

import pytest

from ragpipe.metrics.base import run_skip_reason
from ragpipe.patterns.sentences import list_items
from ragpipe.testing.scripted import make_case, shipped_metric

FIVE = "Here are five:\n1. Revenue\n2. Margin\n3. Cash\n4. Debt\n5. Outlook\n"
NESTED = "- Revenue\n  - up 4 %\n  - driven by Asia\n- Margin\n\nThat is all."


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (FIVE, ["Revenue", "Margin", "Cash", "Debt", "Outlook"]),
        (NESTED, ["Revenue", "Margin"]),
        ("* **Bold** one\n* two", ["Bold one", "two"]),
        ("(1) one\n(2) two", ["one", "two"]),
        ("  1) indented as a whole\n  2) so the outermost level is this one", ["indented as a whole", "so the outermost level is this one"]),
        ("Sales rose by 4 - 5 percent.\n2024 was good.", []),
        ("-5 degrees is no item\n- this is one", ["this is one"]),
        ("", []),
    ],
)  # fmt: skip
def test_list_items(text: str, items: list[str]) -> None:
    assert list_items(text) == items


@pytest.mark.parametrize(
    ("answer", "has", "values"),
    [
        (FIVE, 5, (1.0, 0.0)),  # "10 highlights" of which 5 are known: complete with 5
        (FIVE, 10, (0.5, 0.0)),
        (FIVE, 3, (1.0, 2.0)),  # two more than the contexts hold
        (NESTED, 4, (0.5, 0.0)),
    ],
)
def test_values(answer: str, has: int, values: tuple[float, float]) -> None:
    metric = shipped_metric("list_completeness")
    case = make_case(answer=answer, expected={"context_has": has})
    assert run_skip_reason(metric, case, embedder=False) is None
    (scores,) = metric.compute([case])  # type: ignore[attr-defined]
    assert tuple(score.value for score in scores) == values


@pytest.mark.parametrize(("expected", "reason"), [({}, "no_item_count"), ({"context_has": 0}, "no_items_in_contexts")])
def test_without_a_label_it_does_not_apply(expected: dict[str, int], reason: str) -> None:
    assert (
        run_skip_reason(shipped_metric("list_completeness"), make_case(answer=FIVE, expected=expected), embedder=False)
        == reason
    )


def test_an_answer_without_a_list_is_not_counted() -> None:
    (scores,) = shipped_metric("list_completeness").compute(
        [make_case(answer="Revenue rose.", expected={"context_has": 5})]
    )  # type: ignore[attr-defined]
    assert {(score.status, score.reason) for score in scores} == {("skipped", "no_list")}
