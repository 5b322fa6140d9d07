"""Which cases and samples of a data set were read, in some 70 bytes each: a case stands once, and a sample has one content."""

from __future__ import annotations

from hashlib import blake2b

from ragpipe.core.digest import canonical_json
from ragpipe.core.digest_table import DIGEST, DigestTable, name_digest
from ragpipe.datasets import native_form
from ragpipe.datasets.fault_list import Faults
from ragpipe.schema.sample import Output, Sample

_PLACE = 8
_NUMBER_BITS, _NUMBER_DIGITS = 40, 12


class SeenCases:
    """The cases and samples so far: digests of their names and contents, and where they stand."""

    def __init__(self, faults: Faults):
        self._faults = faults
        self._places = _Places()
        self._cases = DigestTable(_PLACE)
        self._samples = DigestTable(DIGEST + _PLACE)
        self._last: Sample | None = None

    def fits(self, sample: Sample, output: Output | None, where: str) -> bool:
        """False (and a fault) for a second case of the same name, or a sample id with another content."""
        place = self._places.packed(where)
        first = self._cases.setdefault(case_digest(sample, output), place)
        if first is not None:  # it may stand in the same place: one record with two outputs of a method
            case, fix = f"id {sample.id!r}", "give each question its own id"
            if output:
                case += f", method {output.method!r}" + (f", repeat {output.repeat}" if output.repeat != 1 else "")
                content = self._samples.setdefault(name_digest(sample.id), content_digest(sample) + place)
                is_same = content is None or content[:DIGEST] == content_digest(sample)
                repeat = "give each output its own method, or number those of one method by `repeat: 1, 2, ...`"
                fix = repeat if is_same else f"{fix}: these two ask different things"
            stands = f"once; it stands at {self._places.text(first)}"
            self._faults.add(where, "id", f"{case} a second time", stands, fix + _or_an_id(sample))
            return False
        if sample is self._last:
            return True
        self._last = sample
        content = content_digest(sample)
        known = self._samples.setdefault(name_digest(sample.id), content + place)
        if known is not None and known[:DIGEST] != content:
            fix = "give the sample another id, or the same question, references and labels everywhere"
            stands = f"the one of {self._places.text(known[DIGEST:])}"
            what = f"id {sample.id!r} with another sample content"
            self._faults.add(where, "id", what, stands, fix + _or_an_id(sample))
            return False
        return True


def case_digest(sample: Sample, output: Output | None) -> bytes:
    """The digest of what names a case, or a question without an output."""
    return name_digest(sample.id, output.method, str(output.repeat)) if output else name_digest(sample.id)


def content_digest(sample: Sample) -> bytes:
    """The digest of all fields of a sample. The order of names in `gains` and `meta` does not count."""
    if sample.gains or sample.meta:
        content = canonical_json(sample.model_dump(mode="json", exclude_defaults=True))
    else:  # no object with names of the user's: the fields have one order
        content = sample.model_dump_json(exclude_defaults=True)
    return blake2b(content.encode(), digest_size=DIGEST).digest()


def is_hashed(sample: Sample) -> bool:
    """Whether the id of a sample is the hash of its content."""
    return sample.id == native_form.content_id(sample.model_dump(include={"question", "history", "references"}))


def _or_an_id(sample: Sample) -> str:
    return "; or give the records an id: without one it is the hash of what they ask" if is_hashed(sample) else ""


class _Places:
    """Places of records (`data.jsonl:12`, `data.parquet row 12`) in 8 bytes each: what stands before the number is kept once."""

    def __init__(self) -> None:
        self._beginnings: dict[str, int] = {}

    def packed(self, where: str) -> bytes:
        beginning = where.rstrip("0123456789")
        number = where[len(beginning) :]
        if not number or len(number) > _NUMBER_DIGITS or number.startswith("0"):
            beginning, number = where, "0"
        known = self._beginnings.setdefault(beginning, len(self._beginnings))
        return (known << _NUMBER_BITS | int(number)).to_bytes(_PLACE, "big")

    def text(self, packed: bytes) -> str:
        value = int.from_bytes(packed, "big")
        number = value & ((1 << _NUMBER_BITS) - 1)
        return list(self._beginnings)[value >> _NUMBER_BITS] + (str(number) if number else "")
