"""The second reading of a log: the records that were drawn, put together by sample and checked completely."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rapidfuzz import fuzz, process
from rapidfuzz.distance import OSA, Levenshtein

from ragpipe.core.digest import canonical_json
from ragpipe.data.dataset import Dataset
from ragpipe.data.faults import Faults, named_fields
from ragpipe.data.native_form import content_id, flat_id, output_of, sample_of
from ragpipe.extras.test_sets.english import word_set
from ragpipe.extras.test_sets.log_scan import LogScan, Samples, SkippedFaults, askable_cases, hash64, question_text
from ragpipe.extras.test_sets.personal_data import find_personal_data

Record = dict[str, Any]


@dataclass
class DrawnSample:
    """What the log holds of one sample. Of several lines with the same method and repeat, and of several descriptions of the
    sample, the first by its JSON text is taken: it is the same whatever the order of the lines."""

    where: str = ""
    fields: tuple[str, Record] | None = None
    outputs: dict[tuple[str, Any], tuple[str, Record]] = field(default_factory=dict)

    def add(self, fields: Record, outputs: list[Record], where: str) -> None:
        """Add what a record says of the sample."""
        text = canonical_json(fields)
        if self.fields is None or text < self.fields[0]:
            self.fields, self.where = (text, fields), where
        for output in outputs:
            name = (str(output.get("method") or "default"), output.get("repeat") or 1)
            output_text = canonical_json(output)
            if name not in self.outputs or output_text < self.outputs[name][0]:
                self.outputs[name] = (output_text, output)


class LogCases:
    """The drawn samples, `candidates`, as cases of the native form."""

    def __init__(self, dataset: Dataset, scan: LogScan, samples: Samples, candidates: Sequence[int], faults: Faults):
        self._dataset, self._samples, self._faults = dataset, samples, faults
        self._ids: dict[str, str] = {}
        self._drawn = {(int(samples.keys[place]), int(samples.ids[place])): DrawnSample() for place in candidates}
        positions = np.frombuffer(scan.positions, np.uint64)
        wanted = {int(position) for place in candidates for position in positions[samples.rows_of(place)]}
        repeated = SkippedFaults(faults.title)  # the first reading has reported them
        for record, outputs in askable_cases(dataset, repeated, LogScan(), wanted):
            fields, where = record.fields, record.where
            drawn = self._drawn.get((hash64(question_text(fields)), hash64(flat_id(fields))))
            if drawn is not None:
                drawn.add(fields, outputs, where)
        dataset.check_whole_reading(Faults(faults.title))

    def case_of(self, candidate: int, chunk_text: list[str] | None) -> Record | None:
        """The case of a candidate; None, and faults, where the sample or one of its outputs is wrong."""
        drawn = self._drawn[int(self._samples.keys[candidate]), int(self._samples.ids[candidate])]
        assert drawn.fields is not None, "a candidate comes from a row of the first reading"
        before = self._fault_count()
        sample = sample_of(drawn.fields[1], drawn.where, self._faults)
        if sample is None:
            return None
        outputs = [
            output_of(output, sample.id, chunk_text, drawn.where, self._faults)
            for _, (_, output) in sorted(drawn.outputs.items(), key=lambda pair: (pair[0][0], str(pair[0][1])))
        ]
        if self._fault_count() != before:
            return None
        if (place := self._ids.setdefault(sample.id, drawn.where)) != drawn.where:
            where, fix = named_fields(drawn.where, {"id": sample.id}), "map an id that names one question, or none"
            self._faults.add(where, "id", "the id of two questions", f"that of the one at {place}", fix)
            return None
        case = sample.model_dump(mode="json", exclude_defaults=True)
        records = [
            {"method": output.method, **output.model_dump(mode="json", exclude_defaults=True, exclude={"sample_id"})}
            for output in outputs
            if output is not None
        ]
        return with_outputs(case, records)

    def _fault_count(self) -> int:
        faults = self._faults
        return faults.counts.total() if isinstance(faults, SkippedFaults) else len(faults.problems)


def with_outputs(case: Mapping[str, Any], outputs: list[Record]) -> Record:
    """A case of the native form with its outputs: one beside the sample's fields, several in a list."""
    if len(outputs) == 1:
        return {**case, **outputs[0]}
    return {**case, "outputs": outputs} if outputs else dict(case)


_MARKS = re.compile(r"\w*\d\w*|\b\w\b")
"""Words with a digit, and single letters: a question about 2024 or plan B is another one than about 2023 or plan A."""

_EMPTY_WORDS = word_set(
    "an the please pls kindly hi hello hey dear thanks thank you tell me could would like know do does is are"
)
"""Words that change no question: articles, auxiliaries, greetings and politeness. No negation, no preposition, no quantifier."""

_ENDS = ".,;:!?\"'“”‘’()"
_TYPO_LETTERS = 5
_PLURAL_LETTERS = 4
_KNOWN_WORD = 2
_NO_ALPHABET = 0x0E00  # from here on scripts without blanks, where one sign is a word


class NearDuplicates:
    """The questions that are kept so far.

    Two texts are near when their likeness is at least the threshold, they have the same words with digits and the same single
    letters, and, word by word, they differ in nothing but typing errors, a plural -s, and words of a short list that change no
    question. A typing error is one edit (a letter more, less or another, or two neighbours exchanged) in words of five letters
    or more that begin alike; another last letter is none (employer, employee), and words that both occur in two or more
    other questions looked at are two words, not one.

    The likeness is rapidfuzz's `ratio` divided by 100: twice the length of the longest common subsequence over the sum
    of both lengths. A text is only compared with kept ones of a length that allows the threshold.
    """

    def __init__(self, threshold: float):
        self._threshold = threshold
        self._texts: dict[tuple[str, ...], list[tuple[int, str]]] = defaultdict(list)
        self._questions_with: Counter[str] = Counter()

    def kept_before(self, text: str) -> str | None:
        """The kept text that this one is near to, the likest first. None where there is none; then it is kept, too."""
        kept = self._texts[tuple(sorted(_MARKS.findall(text)))]
        longest = self._threshold / (2 - self._threshold)  # min(a, b) / max(a, b) of two lengths that allow it
        low = bisect_left(kept, (int(len(text) * longest), ""))
        high = bisect_right(kept, (int(len(text) / longest) + 2, ""))
        near = [other for _, other in kept[low:high]]
        found = process.extract(text, near, scorer=fuzz.ratio, score_cutoff=self._threshold * 100, limit=None)
        words = _words(text)
        before = next((other for other, _, _ in found if self._asks_the_same(words, _words(other))), None)
        self._questions_with.update(set(words))
        if before is None:
            kept.insert(bisect_left(kept, (len(text), text)), (len(text), text))
        return before

    def _asks_the_same(self, words: list[str], others: list[str]) -> bool:
        for step in Levenshtein.editops(words, others):
            word = words[step.src_pos] if step.tag != "insert" else ""
            other = others[step.dest_pos] if step.tag != "delete" else ""
            if not ({word, other} - {""} <= _EMPTY_WORDS or _is_plural(word, other) or self._is_typo(word, other)):
                return False
        return True

    def _is_typo(self, word: str, other: str) -> bool:
        if min(len(word), len(other)) < _TYPO_LETTERS or word[0] != other[0]:
            return False
        if len(word) == len(other) and word[:-1] == other[:-1]:
            return False
        if not (_is_written_in_letters(word) and _is_written_in_letters(other)):
            return False
        # of the other word's questions the kept one is no other question
        is_known = self._questions_with[word] >= _KNOWN_WORD and self._questions_with[other] > _KNOWN_WORD
        return not is_known and OSA.distance(word, other, score_cutoff=1) <= 1


def _words(text: str) -> list[str]:
    return [word.strip(_ENDS) or word for word in text.split()]


def _is_plural(word: str, other: str) -> bool:
    shorter, longer = sorted((word, other), key=len)
    return len(shorter) >= _PLURAL_LETTERS and longer == f"{shorter}s"


def _is_written_in_letters(word: str) -> bool:
    return word.isalpha() and all(ord(sign) < _NO_ALPHABET for sign in word)


UNTOUCHED = word_set(
    "method version role marker doc_id chunk_id rel_path doc_type policy relevant_docs relevant_chunks gains required_support_groups "
    "recency_conflict_rule folder_mode selected_folders recorded behavior"
)
"""Fields that name methods and documents, and labels: a placeholder in them would break what refers to them."""


class Placeholders:
    """The placeholders of one case: `<EMAIL>` for the first address, `<EMAIL_2>` for the second, and so on.

    `counts` are the replaced places by kind.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def replaced(self, text: str) -> str:
        """The text with a placeholder for everything that is found in it."""
        pieces, end = [], 0
        for place in find_personal_data(text):
            pieces += [text[end : place.start], self._name_of(place.kind, place.identity)]
            end = place.end
            self.counts[place.kind] += 1
        return "".join([*pieces, text[end:]]) if pieces else text

    def _name_of(self, kind: str, identity: str) -> str:
        if (kind, identity) not in self._names:
            self._numbers[kind] += 1
            number = self._numbers[kind]
            self._names[kind, identity] = f"<{kind}>" if number == 1 else f"<{kind}_{number}>"
        return self._names[kind, identity]


def without_personal_data(case: Mapping[str, Any]) -> tuple[dict[str, Any], Counter[str]]:
    """A case of the native form with placeholders in all its texts, and the number of replaced places by kind.

    Names of methods and documents, ids of chunks and labels stay (`UNTOUCHED`). An id of the case that holds personal data
    becomes the hash of what the case asks.
    """
    placeholders = Placeholders()
    ordered = {name: case[name] for name in ("history", "question") if name in case}  # numbered as they are read
    ordered |= {name: value for name, value in case.items() if name not in ("id", *ordered)}
    stripped = _stripped(ordered, placeholders)
    counts = Counter(placeholders.counts)
    case_id = case["id"]
    if find_personal_data(case_id):
        counts["ID"] += 1
        case_id = content_id(stripped)
    names = [name for name in case if name != "id"]
    return {"id": case_id, **{name: stripped[name] for name in names}}, counts


def _stripped(value: Any, placeholders: Placeholders, *, is_chunk: bool = False) -> Any:
    if isinstance(value, str):
        return placeholders.replaced(value)
    if isinstance(value, Mapping):
        return {
            name: item
            if name in UNTOUCHED or (is_chunk and name == "id")
            else _stripped(item, placeholders, is_chunk=name in ("chunks", "contexts"))
            for name, item in value.items()
        }
    if isinstance(value, Sequence):
        return [_stripped(item, placeholders, is_chunk=is_chunk) for item in value]
    return value


def without_meta(case: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """A case without these names below `meta` (dotted for inner ones), and those of them that it had."""
    meta, dropped = case.get("meta"), []
    for name in names:
        if isinstance(meta, Mapping) and (rest := _without(meta, name.split("."))) is not None:
            meta = rest
            dropped.append(name)
    return ({**case, "meta": meta} if dropped else dict(case)), dropped


def _without(mapping: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any] | None:
    """The mapping without the key at a path, None where it is not there."""
    if path[0] not in mapping:
        return None
    if len(path) == 1:
        return {name: item for name, item in mapping.items() if name != path[0]}
    inner = mapping[path[0]]
    rest = _without(inner, path[1:]) if isinstance(inner, Mapping) else None
    return None if rest is None else {**mapping, path[0]: rest}
