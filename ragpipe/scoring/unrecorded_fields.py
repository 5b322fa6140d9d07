"""Which parts of the outputs the data set leaves unrecorded, by method."""

from __future__ import annotations

from dataclasses import dataclass

from ragpipe.schema.sample import PARTS, Case, OutputPart


@dataclass(slots=True)
class Gap:
    """A part of a method's outputs over the cases that could have it: `missing` of `cases` lack it, `first` is the first, and
    `why` what its data say of it: the `lacks` of its meta, as a trace has it."""

    method: str
    part: OutputPart
    cases: int = 0
    missing: int = 0
    first: str = ""
    why: str = ""

    def scale(self, factor: float) -> None:
        """Let these cases stand for so many times as many."""
        self.cases, self.missing = round(self.cases * factor), round(self.missing * factor)

    @property
    def is_whole(self) -> bool:
        """Whether no output of the method records it: what needs it is not applicable there."""
        return self.missing == self.cases

    def __str__(self) -> str:
        many = "all" if self.is_whole else f"{self.missing:,} of"
        return f"{self.part}: not recorded in {many} {self.cases:,} cases of method {self.method}, first {self.first}"


class Recording:
    """Counts over outputs, in the order in which methods come. A failure of the system is no output; a method that retrieves
    nothing by design has no contexts to record."""

    def __init__(self) -> None:
        self._gaps: dict[tuple[str, OutputPart], Gap] = {}

    def add(self, method: str, part: OutputPart, cases: int, missing: int, first: str, why: str = "") -> None:
        """Count outputs of a method that may lack a part.

        Args:
            method: the method.
            part: the part of the output.
            cases: how many outputs there are.
            missing: how many of them lack the part.
            first: the sample id of the first that lacks it.
            why: what its data say of it.
        """
        gap = self._gaps.setdefault((method, part), Gap(method, part))
        if missing and not gap.first:
            gap.first, gap.why = first, why
        gap.cases += cases
        gap.missing += missing

    def add_case(self, case: Case) -> None:
        """One more output."""
        output, why = case.output, str(case.sample.meta.get("lacks") or "")
        for part in PARTS if output.error is None else ():
            if part == "answer" or output.retrieves:
                self.add(output.method, part, 1, int(not case.records(part)), output.sample_id, why)

    def gaps(self) -> list[Gap]:
        """The methods' parts that some output lacks."""
        return [gap for gap in self._gaps.values() if gap.missing]

    def is_recorded(self, method: str, part: OutputPart) -> bool:
        """Whether some output of the method has it."""
        gap = self._gaps.get((method, part))
        return gap is not None and gap.missing < gap.cases
