"""Values that cannot be meant: verdicts outside their scale, seconds where milliseconds are due, texts that are blank or endless."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from statistics import median

from ragpipe.datasets.settings import DatasetSettings
from ragpipe.metrics.base import Metric
from ragpipe.metrics.computed.recorded import RecordedMetric, RecordedScore, recorded_value
from ragpipe.profiling.finding import Finding
from ragpipe.schema.sample import Output, Sample, several

SECONDS = 50.0
"""Median of `timings.total` under which it is asked whether they are seconds: a generated answer takes longer than 50 ms."""
LONGEST = {"question": 10_000, "answer": 30_000, "context": 60_000}
"""Characters from which on a text is said to be very long: 15,000 tokens of one context leave a judge no room for others."""
_MILLISECONDS = re.compile(r"(?:(?:^|[_.])ms|Ms|(?i:millis\w*))\b|\btime_ms\(")
HELD = 20_000  # timings of a method, the first ones


def times_are_known(settings: DatasetSettings) -> bool:
    """Whether a mapping says in which unit its times are: it reads spans, or `timings` has a `unit` or a path that ends in `ms`."""
    timings = settings.fields.get("timings")
    if timings is None:
        return False
    parts = [timings, *(timings.fields or {}).values()]
    named = (part.unit is not None or _MILLISECONDS.search(part.path or "") for part in parts)
    return settings.format == "spans" or any(named)


class _Count:
    """How often something was seen, and where first."""

    def __init__(self) -> None:
        self.n, self.first, self.most = 0, "", 0.0

    def add(self, where: str, size: float = 0.0) -> None:
        self.n += 1
        self.first = self.first or where
        self.most = max(self.most, size)


class ValueChecks:
    """Counts over samples and outputs. `metrics` are those of the run: the metric `recorded` declares scales. With `times_known`
    nothing is said of the unit of times."""

    def __init__(self, metrics: Iterable[Metric], *, times_known: bool):
        self._times_known = times_known
        takes = [metric.take for metric in metrics if isinstance(metric, RecordedMetric)]
        self._scales = {name: spec for take in takes for name, spec in take.items()}
        self._off_scale: dict[str, _Count] = {}
        self._totals: dict[str, tuple[array[float], str]] = {}
        self._long: dict[str, _Count] = {}
        self._blank_references, self._blank_contexts = _Count(), _Count()
        self._contexts_with_text = 0

    def add_sample(self, sample: Sample) -> None:
        """Take the question and the references of a sample into account."""
        self._measure("question", sample.question, sample.id)
        if any(not text.strip() for text in sample.references):
            self._blank_references.add(sample.id)

    def add_output(self, output: Output) -> None:
        """Take the texts, timings and recorded verdicts of an output into account."""
        self._measure("answer", output.answer or "", output.sample_id)
        for chunk in output.chunks or ():
            self._measure("context", chunk.text, output.sample_id)
            if chunk.text.strip():
                self._contexts_with_text += 1
            else:
                self._blank_contexts.add(output.sample_id)
        if "total" in output.timings and output.answer and not self._times_known:
            totals, _ = self._totals.setdefault(output.method, (array("d"), output.sample_id))
            if len(totals) < HELD:
                totals.append(output.timings["total"])
        for name, spec in self._scales.items():
            self._compare(name, spec, output)

    def _measure(self, kind: str, text: str, where: str) -> None:
        if len(text) > LONGEST[kind]:
            self._long.setdefault(kind, _Count()).add(where, len(text))

    def _compare(self, name: str, spec: RecordedScore, output: Output) -> None:
        """Count the case where one of the verdicts behind a recorded score is a number outside its scale."""
        value = recorded_value(output.recorded, spec.source or name)
        verdicts = several(value)
        for verdict in (value,) if verdicts is None else verdicts.values():
            if isinstance(verdict, int | float) and spec.off_scale(float(verdict)):
                self._off_scale.setdefault(name, _Count()).add(output.sample_id)
                return

    def findings(self) -> list[Finding]:
        """What the values so far have that cannot be meant."""
        found = []
        for name, count in self._off_scale.items():
            spec = self._scales[name]
            text = f"recorded score {name}: {_cases(count.n)} outside its scale {spec.low:g} to {spec.high:g}, first {count.first!r}"
            fix = f"set metrics.recorded.take.{name}.low and .high to the scale of the data"
            found.append(Finding("off_scale", text, count.n, count.first, fix))
        for method, (totals, first) in self._totals.items():
            if (middle := median(totals)) < SECONDS:
                text = f"method {method}: the median of timings.total is {middle:.3g} milliseconds"
                fix = "if these are seconds, map them as {path: ..., unit: s}"
                found.append(Finding("seconds", text, len(totals), first, fix))
        return [*found, *self._texts()]

    def _texts(self) -> list[Finding]:
        """Texts that are blank or very long. Contexts that all lack a text are ids alone, and no fault."""
        found = []
        if count := self._blank_references.n:
            first = self._blank_references.first
            text = f"{count:,} sample{'s have' if count > 1 else ' has'} a blank reference, first {first!r}"
            found.append(
                Finding("blank_references", text, count, first, "it is left out: remove it, or map what is meant")
            )
        if (count := self._blank_contexts.n) and self._contexts_with_text:
            first, total = self._blank_contexts.first, count + self._contexts_with_text
            text = f"{count:,} of {total:,} contexts have no text, first in {first!r}"
            fix = "a judge sees nothing in them: join their texts by id, or map the field that holds them"
            found.append(Finding("blank_contexts", text, count, first, fix))
        for kind, counted in self._long.items():
            text = (
                f"{counted.n:,} {kind}{'s' if counted.n > 1 else ''} of more than {LONGEST[kind]:,} characters, the longest "
                f"{counted.most:,.0f}, first in {counted.first!r}"
            )
            fix = "is a whole document mapped? Questions to the judge may be too long for its context window"
            found.append(Finding(f"long_{kind}s", text, counted.n, counted.first, fix))
        return found


def _cases(count: int) -> str:
    return "1 case is" if count == 1 else f"{count:,} cases are"
