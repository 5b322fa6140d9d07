"""The parts of a mapping: where a field comes from, joins, splits and groups of rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError

from ragpipe.core import registry
from ragpipe.datasets.path_expressions import Expression
from ragpipe.patterns.timed_regex import compile_splitter
from ragpipe.schema.settings import Settings

_FORMATS = ("auto", "jsonl", "json", "json_objects", "json_columns", "csv", "parquet", "trec")


def _known_format(form: str) -> str:
    if form not in _FORMATS and registry.find("reader", form) is None:
        known = [f"'{name}'" for name in (*_FORMATS, *registry.names("reader"))]
        raise PydanticKnownError("literal_error", {"expected": ", ".join(known)})
    return form


Format = Annotated[
    str,
    AfterValidator(_known_format),
    WithJsonSchema({"enum": [*_FORMATS, *registry.own_names("reader")], "type": "string"}),
]
"""A format of ours, or one that an extra or a plugin reads."""
Unit = Literal["ns", "us", "ms", "s", "min"]


def _compiles(text: str) -> str:
    Expression(text)
    return text


def _pattern(text: str) -> str:
    compile_splitter(text)
    return text


PathExpression = Annotated[str, AfterValidator(_compiles)]


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
    otherwise: Any = Field(
        default=None, description="Value for everything that `map` does not list. null is a value too."
    )
    unit: Unit | None = Field(
        default=None, description="Unit of a duration, a number; the value is turned into milliseconds."
    )
    default: Any = Field(
        default=None, description="Value where the path gives null. null itself: the field may be null in every record."
    )
    const: Any = Field(default=None, description="The same value for every record.")
    each: PathExpression | None = Field(
        default=None,
        description=(
            "Path of a list, or of an object read as a list of {key, value}, from whose elements the value is built."
        ),
    )
    fields: dict[str, FieldMap] | None = Field(
        default=None,
        description="Fields of the object to build, or with `each` of the object built from every element.",
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
            raise ValueError(
                "`each` needs `fields` (a list of objects), `value` (a list) or `key` and `value` (an object)"
            )
        return self


class Join(Settings):
    """The record of another file, or of another list of the same file, whose `by` equals this record's `key`.

    The match stands in the record under the join's name, null where there is none; with `many` the list of all. With
    `each` the join is made for every element of a list: the name then holds that list, each element with its match
    under `as`, and `key` is looked up in the element. `records` is the path of the list within a JSON document.
    """

    file: str | None = Field(
        default=None,
        description="Name, in `dataset.files`, of the file that is joined. null: a list of the same document (`records`).",
    )
    records: PathExpression | None = Field(
        default=None,
        description=(
            "Path of the list of records in a JSON document, or in each row of another file; `@` is the document or row "
            "itself. null: the file's own records."
        ),
    )
    format: Format = Field(default="auto", description="Format of the file. auto: by its suffix.")
    by: PathExpression = Field(description="Path, in the joined records, of the value that must equal `key`.")
    key: PathExpression = Field(description="Path, in the record or in an element of `each`, of the value to look up.")
    many: bool = Field(
        default=False, description="Whether all matches are kept, as a list. Default: the one match, or null."
    )
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
    pattern: Annotated[str, AfterValidator(_pattern)] = Field(
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
