"""What the outputs of a method have in common: questions that it lacks, answers and contexts that are always the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragpipe.patterns.refusals import load_refusals, read_refusal
from ragpipe.profiling.finding import Finding
from ragpipe.schema.sample import Output

FEWEST = 3
"""Questions from which on equal answers or contexts are said."""
MANY = 0.1
"""Share of a method's questions from which on one answer is given too often, unless it only declines."""
MOST = 0.5
"""Share of a method's questions from which on equal contexts are said."""
FEW_WORDS = 3
"""Words up to which many questions may have the same right answer, such as yes, no, or a year."""
MANY_SHORT, NEARLY_ALL = 10, 0.9
"""Questions, and their share, from which on an answer of few words is given too often."""
SHOWN = 4  # methods that a line names
REFUSALS = "refusals.v3"


class _SameText:
    """How many questions of a method have the same text, by its hash: [count, number of the first, of the last]."""

    def __init__(self) -> None:
        self._seen: dict[int, list[int]] = {}
        self.most = [0, 0, 0]
        self.text = ""

    def add(self, text: str, number: int) -> None:
        """One more question with this text; another output for the same question does not count."""
        seen = self._seen.setdefault(hash(text), [0, number, -1])
        if seen[2] != number:
            seen[0] += 1
            seen[2] = number
            if seen[0] > self.most[0]:
                self.most, self.text = seen, text[:200]


class _Method:
    def __init__(self) -> None:
        self.asked = bytearray()
        self.questions = 0
        self.answers, self.contexts = _SameText(), _SameText()
        self.repeating = [0, 0]  # outputs with a chunk that came before, the number of the first one's sample

    def ask(self, number: int) -> None:
        """The method has an output for the sample of this number."""
        if number >= len(self.asked):
            self.asked.extend(bytes(number + 1 - len(self.asked)))
        self.questions += not self.asked[number]
        self.asked[number] = 1


class MethodChecks:
    """Counts over outputs by method. Holds a hash for each different answer and list of contexts, a byte for each question."""

    def __init__(self) -> None:
        self._methods: dict[str, _Method] = {}

    def add(self, number: int, output: Output) -> None:
        """Take an output into account. `number` is that of its sample."""
        method = self._methods.setdefault(output.method, _Method())
        method.ask(number)
        if output.error is not None:
            return
        if output.answer and output.answer.strip():
            method.answers.add(" ".join(output.answer.split()), number)
        texts = [chunk.text or chunk.id for chunk in output.chunks or ()]
        if len(set(texts)) < len(texts):
            method.repeating = [method.repeating[0] + 1, method.repeating[1] if method.repeating[0] else number]
        if texts:
            method.contexts.add("\n".join(texts), number)

    def findings(self, ids: Sequence[str]) -> list[Finding]:
        """What the methods so far lack or repeat. `ids` are those of all samples, by number."""
        found = _differing(self._methods, ids)
        for name, method in self._methods.items():
            count, first, _ = method.answers.most
            if _is_too_often(method.answers.text, count, method.questions):
                text = f"method {name}: {count:,} of {method.questions:,} questions have the same answer, {method.answers.text[:60]!r}"
                fix = "is `answer` mapped to the right field?"
                found.append(Finding("same_answers", text, count, ids[first], fix))
            count, first, _ = method.contexts.most
            if count >= max(FEWEST, MOST * method.questions):
                text = f"method {name}: {count:,} of {method.questions:,} questions have the same contexts"
                fix = "are `contexts` mapped to what was retrieved for each question?"
                found.append(Finding("same_contexts", text, count, ids[first], fix))
            count, first = method.repeating
            if count >= max(FEWEST, MANY * method.questions):
                text = f"method {name}: {count:,} outputs have a retrieved chunk twice, first {ids[first]!r}"
                fix = "drop duplicates after retrieval: a chunk that comes again only takes a place"
                found.append(Finding("repeated_chunks", text, count, ids[first], fix))
        return found


def _differing(methods: Mapping[str, _Method], ids: Sequence[str]) -> list[Finding]:
    """Methods that do not have outputs for the same questions, as one finding; none where each has all."""
    lacking = {name: method for name, method in methods.items() if method.questions < len(ids)}
    if not lacking:
        return []
    name, method = next(iter(lacking.items()))
    first = method.asked.find(0)
    where = ids[first if first >= 0 else len(method.asked)]
    shared = sum(all(number < len(m.asked) and m.asked[number] for m in methods.values()) for number in range(len(ids)))
    counts = ", ".join(f"{name} {method.questions:,}" for name, method in list(lacking.items())[:SHOWN])
    more = f" and {len(lacking) - SHOWN} more methods" if len(lacking) > SHOWN else ""
    text = f"of {len(ids):,} questions there are outputs of {counts}{more}; {name} lacks {where!r} first"
    fix = f"methods are compared on the {shared:,} that all share" if len(methods) > 1 else ""
    return [Finding("differing_questions", text, len(ids) - shared, where, fix, is_warning=False)]


def _is_too_often(answer: str, count: int, questions: int) -> bool:
    """Whether an answer of this text to so many questions is suspicious. One that declines, or may do so in a language that the rules
    do not cover, never is."""
    if len(answer.split()) <= FEW_WORDS:
        return count >= MANY_SHORT and count >= NEARLY_ALL * questions
    if count < max(FEWEST, MANY * questions):
        return False
    reading = read_refusal(answer, load_refusals(REFUSALS))
    return reading.covered and not reading.refused
