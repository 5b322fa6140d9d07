r"""The `dataset` section: where the data stands and, for any shape but the native one, how a record becomes a case.

    path: FOLDER                       a file or a folder; relative to where the command is started, or package:demo/x.jsonl
    files: {main: tasks.jsonl, run: run.bm25.trec, corpus: corpus.jsonl}
    join:                              other files or lists by key
      run: {file: run, by: query, key: id}
      hits: {each: run.hits, file: corpus, by: id, key: doc, as: passage}
    group: {by: query_id, as: rows}    rows of one key into one record; before joins, splits and explodes
    split:                             one text into many
      passages: {text: source.passages, pattern: 'passage \d+:'}
    explode: {response: responses}     one record into one case per element
    fields:                            fields of Sample and Output, from the record and the names given above
      id: task_id                      a path expression (JMESPath)
      method: {const: bm25}
      answerable: {path: label, map: {ANSWERABLE: true, UNANSWERABLE: false}}
      chunks: {each: hits, fields: {id: doc, score: score, text: passage.text}}
      gains: {each: qrels.judged, key: doc, value: relevance}
      meta: {fields: {topic: topic}}

Joins, splits and explodes are carried out in the order in which they need each other, whatever their order here.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError

from ragpipe.core import registry
from ragpipe.core.patterns import compile_splitter
from ragpipe.core.sample import Anchor, Chunk, Citation, Expected, Output, ReferenceRule, Sample, Turn
from ragpipe.core.settings import NotInIdentity, Settings, Sha256, accepted_by
from ragpipe.data.expressions import Expression
from ragpipe.store.places import address_fault, is_remote, name_fault

_FORMATS = ("auto", "jsonl", "json", "json_objects", "json_columns", "csv", "parquet", "trec")


def _known_format(form: str) -> str:
    if form not in _FORMATS and registry.find("reader", form) is None:
        known = [f"'{name}'" for name in (*_FORMATS, *registry.names("reader"))]
        raise PydanticKnownError("literal_error", {"expected": ", ".join(known)})
    return form


Format = Annotated[
    str, AfterValidator(_known_format), WithJsonSchema({"enum": [*_FORMATS, *registry.own_names("reader")], "type": "string"})
]
"""A format of ours, or one that an extra or a plugin reads."""
Unit = Literal["ns", "us", "ms", "s", "min"]


PathExpression = Annotated[str, accepted_by(Expression)]


def _good_address(path: str) -> str:
    if is_remote(path) and (expected := address_fault(path)):
        raise ValueError(expected)
    return path


Address = Annotated[str, Field(min_length=1), AfterValidator(_good_address)]
"""A path, or an address of an object store."""


class FieldMap(Settings):
    """Where a field's value comes from: a path, a constant, a list built from each element, or an object of fields.

    A bare text is a path. `map` translates the value (each one of a list); a value that is not in it becomes `otherwise`,
    and is a fault without one. `unit` turns a duration into milliseconds. `default` stands where the path gives null; given
    as null it says that the field may be null everywhere. `each` takes a list, or an object as its elements `{key, value}`.
    """

    path: PathExpression | None = Field(default=None, description="Path expression (JMESPath) that gives the value.")
    map: dict[str, Any] | None = Field(
        default=None,
        description=(
            "Translation of the value, or of each element of a list. A value that is not listed is a fault unless "
            "`otherwise` is set."
        ),
    )
    otherwise: Any = Field(default=None, description="Value for everything that `map` does not list. null is a value too.")
    unit: Unit | None = Field(default=None, description="Unit of a duration, a number; the value is turned into milliseconds.")
    default: Any = Field(
        default=None, description="Value where the path gives null. null itself: the field may be null in every record."
    )
    const: Any = Field(default=None, description="The same value for every record.")
    each: PathExpression | None = Field(
        default=None,
        description=("Path of a list, or of an object read as a list of {key, value}, from whose elements the value is built."),
    )
    fields: dict[str, FieldMap] | None = Field(
        default=None, description="Fields of the object to build, or with `each` of the object built from every element."
    )
    key: PathExpression | None = Field(
        default=None, description="Path, in an element of `each`, of the key; builds an object together with `value`."
    )
    value: FieldMap | None = Field(
        default=None, description="Value built from an element of `each`; without `key` the result is a list."
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A bare text is a path, which the fields alone do not say."""
        return {"anyOf": [{"type": "string"}, handler(schema)]}

    @model_serializer(mode="wrap")
    def _as_given(self, serializer: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what was given: `const: null` is a source, and the run's config.yaml must read back as the same mapping."""
        return {name: value for name, value in serializer(self).items() if name in self.model_fields_set}

    def identity(self) -> dict[str, Any]:
        return {name: value for name, value in super().identity().items() if name in self.model_fields_set}

    @model_validator(mode="before")
    @classmethod
    def _text_is_a_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("map", mode="before")
    @classmethod
    def _keys_are_text(cls, value: Any) -> Any:
        return {key_text(key): item for key, item in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _one_source(self) -> FieldMap:
        fields_set = self.model_fields_set
        sources = [name for name in ("path", "const", "each", "fields") if name in fields_set]
        if sources == ["each", "fields"]:
            sources = ["each"]
        if len(sources) != 1:
            raise ValueError(f"one of `path`, `const`, `each` or `fields` must be given, found {sources or 'none'}")
        allowed = {
            "path": {"map", "otherwise", "unit", "default"},
            "const": set(),
            "each": {"fields", "key", "value", "default"},
            "fields": set(),
        }
        if extra := fields_set - allowed[sources[0]] - set(sources):
            raise ValueError(f"`{sources[0]}` does not go with {', '.join(f'`{name}`' for name in sorted(extra))}")
        if "otherwise" in fields_set and self.map is None:
            raise ValueError("`otherwise` stands beside a `map`: it is for values that are not in it")
        if self.unit is not None and self.map is not None:
            raise ValueError("`unit` and `map` do not go together: the one takes numbers, the other labels")
        shape = fields_set & {"fields", "key", "value"}
        if sources == ["each"] and shape not in ({"fields"}, {"value"}, {"key", "value"}):
            raise ValueError("`each` needs `fields` (a list of objects), `value` (a list) or `key` and `value` (an object)")
        return self


class RecordsOfFile(Settings):
    """The form of a file, and where its records are: of the main file, and of one that is joined."""

    format: Format = Field(default="auto", description="Format of the file. auto: by its suffix.")
    records: PathExpression | None = Field(
        default=None,
        description=(
            "Path of the list of records in a JSON document, or in each row of another file; `@` is the document or row "
            "itself. null: the rows, or the list that the document is."
        ),
    )


class Join(RecordsOfFile):
    """The record of another file, or of another list of the same file, whose `by` equals this record's `key`.

    The match stands in the record under the join's name, null where there is none; with `many` the list of all. With
    `each` the join is made for every element of a list: the name then holds that list, each element with its match
    under `as`, and `key` is looked up in the element. `records` is the path of the list within a JSON document.
    """

    file: str | None = Field(
        default=None,
        description="Name, in `dataset.files`, of the file that is joined. null: a list of the same document (`records`).",
    )
    by: PathExpression = Field(description="Path, in the joined records, of the value that must equal `key`.")
    key: PathExpression = Field(description="Path, in the record or in an element of `each`, of the value to look up.")
    many: bool = Field(default=False, description="Whether all matches are kept, as a list. Default: the one match, or null.")
    each: PathExpression | None = Field(
        default=None, description="Path of a list, for each of whose elements the join is made. null: once per record."
    )
    into: str | None = Field(
        default=None,
        alias="as",
        min_length=1,
        description="Name, in an element of `each`, under which its match is put. null: without `each`.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Join:
        if (self.each is None) != (self.into is None):
            raise ValueError("`each` and `as` go together: the list, and the name of the match in its elements")
        if self.file is None and self.records is None:
            raise ValueError("`file` (one of dataset.files) or `records` (a list of the same document) must be given")
        return self


MAX_SPLIT = 1_000_000
"""Characters of the longest text that is split."""
MAX_GROUPED = 1_000_000
"""Rows that are held in memory to be grouped."""


class Split(Settings):
    """A text cut at every match of a pattern; the pieces are stripped and empty ones left out.

    The pattern is given one second for a text; a text longer than MAX_SPLIT characters is refused.
    """

    text: PathExpression = Field(description="Path of the text to split.")
    pattern: Annotated[str, accepted_by(compile_splitter)] = Field(
        description="Regular expression at whose matches the text is cut. It may take one second per text."
    )


class Group(Settings):
    """Rows with the same key as one record: the names of the first row, and all rows as a list under `as`. All rows are held in
    memory, at most MAX_GROUPED."""

    by: Annotated[list[PathExpression], Field(min_length=1)] = Field(
        description="Path, or list of paths, of the values in which the rows of one record agree."
    )
    into: str = Field(default="rows", alias="as", min_length=1, description="Name of the list of rows.")

    @field_validator("by", mode="before")
    @classmethod
    def _one_path_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


def key_text(value: Any) -> str:
    """A YAML key or a record's value as the text by which maps and joins find it: true, 7 and "7" as `true`, `7`, `7`."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


SHORTCUTS = frozenset({"reference", "contexts"})
SAMPLE_FIELDS = frozenset(Sample.model_fields) | {"reference"}
OUTPUT_FIELDS = (frozenset(Output.model_fields) - {"sample_id"}) | {"contexts"}
_INNER: dict[str, frozenset[str]] = {
    "chunks": frozenset(Chunk.model_fields),
    "citations": frozenset(Citation.model_fields),
    "anchors": frozenset(Anchor.model_fields),
    "history": frozenset(Turn.model_fields),
    "expected": frozenset(Expected.model_fields),
}


class SampleOf(Settings):
    """Which samples are taken (with all their methods): the same for a seed, whatever the order of the file, by the hash of the id.

    `n` of them, or for production a `rate` of all, of each day at most `per_day`. Without a `seed` of its own it takes the run's.
    """

    n: int | None = Field(default=None, ge=1, description="Number of samples to draw, 1 or more, each with all its methods.")
    rate: float | None = Field(default=None, gt=0, le=1, description="Share of the samples to draw, above 0 to 1.")
    per_day: int | None = Field(
        default=None, ge=1, description="Most samples to draw of one day by `time`, 1 or more. null: no limit."
    )
    time: PathExpression | None = Field(
        default=None,
        description=(
            "Path, in the sample, of its time, for `per_day`: meta.time. ISO 8601, or seconds, ms, µs or ns since 1970; days are UTC."
        ),
    )
    seed: int | None = Field(default=None, description="Seed of the draw. null: the run's `seed`.")

    @model_validator(mode="after")
    def _one_kind(self) -> SampleOf:
        if (self.n is None) == (self.rate is None and self.per_day is None):
            raise ValueError("either `n`, or `rate` and `per_day` (one of the two is enough)")
        if (self.per_day is None) != (self.time is None):
            raise ValueError("`per_day` and `time` go together: the budget, and the path of the time that names the day")
        return self

    def seeded(self, seed: int) -> SampleOf:
        """With this seed where it has none of its own."""
        return self if self.seed is not None else self.model_copy(update={"seed": seed})


class DatasetSettings(RecordsOfFile):
    """The data set. `path` and the names of the files are no part of a run's identity: the hash of their content is.

    `references` says which of several reference answers count; it is part of the identity of the metrics that take it over.
    """

    name: Annotated[str, NotInIdentity] = Field(default="dataset", min_length=1, description="Name of the data set in reports.")
    path: Annotated[Address, NotInIdentity] = Field(
        description=(
            "File or folder of the data, relative to where the command is started; in a YAML file `here:` starts at the "
            "file's folder; `package:` names a file of ragpipe; or an address such as s3://bucket/file.jsonl."
        )
    )
    files: Annotated[dict[str, str | list[str]], NotInIdentity] = Field(
        default_factory=dict,
        description=(
            "Files below `path`, or beside it where it is a file, by a name of your own, each one path or a list. `main` holds the "
            "records; with a pattern such as `*.jsonl` a `path` that is a file is read alone. Default: the file `path`."
        ),
    )
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="Character between the cells of a CSV file.")
    nan: Literal["error"] | None = Field(
        default="error",
        description="What NaN in JSON or Parquet means. null: no value. error: it is a fault, as JSON has no NaN.",
    )
    empty: Literal["text"] | None = Field(
        default="text",
        description=("What an empty CSV cell is in a mapping. null: no value, as pandas writes it. text: an empty text."),
    )
    group: Group | None = Field(
        default=None, description="Rows that become one record, by their key. null: each row is a record."
    )
    join: dict[str, Join] = Field(
        default_factory=dict, description="Joins with other files or lists, by the name that the match gets. Default: none."
    )
    split: dict[str, Split] = Field(
        default_factory=dict, description="Texts to split into lists, by the name of the list. Default: none."
    )
    explode: dict[str, PathExpression] = Field(
        default_factory=dict,
        description=("Paths of lists whose elements become records of their own, by the name of the element. Default: none."),
    )
    fields: dict[str, FieldMap] = Field(
        default_factory=dict,
        description=(
            "Fields of a case (question, reference, answer, chunks, ...) and where each comes from. Default: the native form."
        ),
    )
    chunk_text: list[str] | None = Field(
        default=None,
        description=(
            "Keys of a context that is an object, in the order in which they are joined to its text. null: written as JSON."
        ),
    )
    references: Annotated[ReferenceRule, NotInIdentity] = Field(
        default="any",
        description=(
            "Which of several reference answers count. any: any of them will do; first: the first; all: each is "
            "measured. A metric may say otherwise."
        ),
    )
    filter: PathExpression | None = Field(
        default=None,
        description=(
            "Condition (JMESPath) on the mapped record, with the defaults of its fields; other records are left out. null: all are taken."
        ),
    )
    sample: SampleOf | None = Field(
        default=None,
        description="A random but repeatable choice of samples: {n: 100}, or {rate: 0.05, per_day: 200, time: meta.time}. null: all.",
    )
    limit: int | None = Field(default=None, ge=1, description="Number of samples to take from the start, 1 or more. null: all.")
    sha256: Annotated[Sha256 | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Hash that the content must have: the sha256 of the data set's one file, as a frozen set's card has it. "
            "Other content is refused. null: any."
        ),
    )

    @field_validator("files")
    @classmethod
    def _good_names(cls, files: dict[str, str | list[str]], info: ValidationInfo) -> dict[str, str | list[str]]:
        path = str(info.data.get("path", ""))
        for role, names in files.items():
            for name in [names] if isinstance(names, str) else names:
                if expected := name_fault(path, name):
                    raise ValueError(f"files.{role}: {expected}")
        return files

    @field_validator("fields")
    @classmethod
    def _known_fields(cls, fields: dict[str, FieldMap]) -> dict[str, FieldMap]:
        _refuse_unknown("fields", fields, SAMPLE_FIELDS | OUTPUT_FIELDS)
        for name, known in _INNER.items():
            if name in fields and fields[name].fields:
                _refuse_unknown(f"fields.{name}.fields", fields[name].fields or {}, known)
        if fields and "question" not in fields:
            raise ValueError("a mapping needs `question`; missing: question")
        return fields

    @model_validator(mode="after")
    def _consistent(self) -> DatasetSettings:
        if not self.fields and (self.join or self.split or self.explode or self.group):
            raise ValueError(
                "`group`, `join`, `split` and `explode` need `fields`: records of the native form are read as they are"
            )
        names = [*self.join, *self.split, *self.explode]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the name {twice[0]!r} is given twice among join, split and explode")
        self.order()
        return self

    def order(self) -> list[str]:
        """Names of joins, splits and explodes, each after those it looks up; otherwise in this order and as written.

        Raises ValueError when names need each other.
        """
        needs = {name: Expression(join.each or join.key).roots for name, join in self.join.items()}
        needs |= {name: Expression(split.text).roots for name, split in self.split.items()}
        needs |= {name: Expression(path).roots for name, path in self.explode.items()}
        done: list[str] = []
        while left := [name for name in needs if name not in done]:
            free = next((name for name in left if not needs[name] & (set(left) - {name})), None)
            if free is None:
                raise ValueError(f"{', '.join(left)} need each other: none of them can be made first")
            done.append(free)
        return done


def _refuse_unknown(where: str, fields: dict[str, FieldMap], known: frozenset[str]) -> None:
    for name in fields:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(known))}"
            raise ValueError(f"{where}: {name!r} is no field of a sample or an output{hint}")
