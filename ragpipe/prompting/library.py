"""The prompt library: finds versioned templates in prompt folders, checks them and compiles them.

A template is `<folder>/<step>.v<N>.jinja`: YAML front matter between two `---` lines, then blocks that open with a line
`[[system]]` or `[[user]]`. The front matter declares `roles` (what each variable is: text, claims, sources, question,
reference, ...) and `optional` (variables with a default; optional parts render nothing when off). Comments `{# ... #}`
change neither the rendered messages nor the hash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import jinja2
import jinja2.meta
import jinja2.nodes

from ragpipe.core.errors import Problem, PromptError
from ragpipe.prompting.fences import print_plain, print_value
from ragpipe.prompting.graded_examples import EXAMPLES_NAME, GradedExamples, read_graded_examples
from ragpipe.prompting.prompt import Prompt, environment, render_block
from ragpipe.prompting.template_files import (
    TemplateFile,
    line_of,
    read_template_file,
    read_text,
    template_error,
    template_hash,
    used_in_template,
)

_NAME = re.compile(r"(?P<step>[a-z][a-z0-9_]*)\.(?P<version>v\d+[a-z0-9_]*)\.jinja\Z")
_FOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INCLUDE_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]*/)*[A-Za-z0-9_][A-Za-z0-9_.\-]*\Z")
ROLES = frozenset(
    ("text", "main_point", "claims", "sources", "numbers", "question", "reference", "existing", "citations", "rules")
)
"""What a variable can be. The embedded judge answers by roles; `numbers` are those under which the sources are shown, `rules`
the user's own words, not material."""
_VALID_TEMPLATE = "a valid Jinja template"
_COMPILE_ERRORS = (
    jinja2.TemplateError,
    SyntaxError,
    RecursionError,
    MemoryError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
)


_LOADED: dict[tuple[tuple[Path, ...], Path, str], Prompt] = {}
"""What was parsed in this process, by the folders, the file and its text: a sweep and a notebook load the same templates again."""
_MOST_LOADED = 500


class PromptLibrary:
    """Finds templates in the folders; the first folder with the file wins (the user's folders, then the shipped one)."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = tuple(folders)
        self._env = environment(self.folders, print_value)
        self._plain_env = environment(self.folders, print_plain)
        self._includes: dict[str, jinja2.nodes.Template] = {}

    def load(self, folder: str, step: str, version: str) -> Prompt:
        """Load `<folder>/<step>.<version>.jinja`. Raises PromptError naming the file, the line and the known versions."""
        name = f"{folder}/{step}.{version}.jinja"
        if not (_FOLDER.match(folder) and _NAME.match(f"{step}.{version}.jinja")):
            place, value = str(self.folders[0]), f"{version!r} of {folder}/{step}"[:200]
            expected = "a version such as v1 or v2_short: v, a number, then lower case letters, digits and _"
            raise PromptError("a prompt is missing", [Problem(place, f"prompts.{step}", value, expected)])
        path = self._find(name)
        if path is not None:
            return self._load_file(path, f"{folder}/{step}", version)
        versions = self.versions(folder, step)
        folders = ", ".join(str(root) for root in self.folders)
        expected = f"one of the versions {', '.join(versions)}" if versions else f"a file in {folders}"
        fix = "set the version in the metric's YAML or add the file"
        place = str(self.folders[0] / name)
        raise PromptError(
            "a prompt is missing", [Problem(place, f"prompts.{step}", f"no template {name}", expected, fix)]
        )

    def versions(self, folder: str, step: str) -> list[str]:
        """All versions of a step, over all folders, sorted. Empty for names that no step can have."""
        if not (_FOLDER.match(folder) and _NAME.match(f"{step}.v1.jinja")):
            return []
        matches = (_NAME.match(path.name) for root in self.folders for path in (root / folder).glob(f"{step}.*.jinja"))
        return sorted({match["version"] for match in matches if match and match["step"] == step})

    def load_examples(self, prompt: Prompt, version: str) -> GradedExamples:
        """Load `<folder>/<step>.examples.<version>.yaml` for the step of this prompt. Raises PromptError naming the file, the line
        and the known versions."""
        name = f"{prompt.name}.examples.{version}.yaml"
        path = self._find(name) if EXAMPLES_NAME.match(name.rpartition("/")[2]) else None
        if path is not None:
            return read_graded_examples(path, prompt.name, version)
        folder, step = prompt.name.split("/")
        files = (EXAMPLES_NAME.match(path.name) for root in self.folders for path in (root / folder).glob("*.yaml"))
        known = sorted({match["version"] for match in files if match and match["step"] == step})
        expected = (
            f"one of the versions {', '.join(known)}" if known else f"a file in {', '.join(map(str, self.folders))}"
        )
        fix = "name a version that there is, add the file, or write the examples out as a list of texts"
        problem = Problem(str(self.folders[0] / name), f"examples.{step}", f"no file {name}", expected, fix)
        raise PromptError("graded examples are missing", [problem])

    def _find(self, name: str) -> Path | None:
        """The file of this name in the first folder that has it."""
        return next((root / name for root in self.folders if (root / name).is_file()), None)

    def _load_file(self, path: Path, name: str, version: str) -> Prompt:
        known = (self.folders, path, read_text(path))
        cached = _LOADED.get(known)
        if cached is not None and all(self._include_text(path, name) == text for name, text in cached.includes.items()):
            return cached
        file = read_template_file(path)
        compiled: list[tuple[str, jinja2.Template | str]] = []
        variables, includes = set[str](), dict[str, str]()
        for block in file.blocks:
            line = block.lines_before + 1
            env = self._env if file.fences else self._plain_env
            tree = self._tree(path, block.source, block.lines_before, env)
            block_variables = self._variables(path, tree, includes)
            compiled.append((block.role, self._compile(path, tree, line, block_variables, env)))
            variables |= block_variables
        if not file.fences:  # an audit's templates: their folder may be gone when the first case is rendered
            for include in includes:
                self._plain_env.get_template(include)
        _check_variables(file, variables)
        digest = template_hash(file.text, includes)
        while len(_LOADED) >= _MOST_LOADED:
            _LOADED.pop(next(iter(_LOADED)), None)
        _LOADED[known] = Prompt(
            name,
            version,
            path,
            file.text,
            digest,
            file.roles,
            file.optional,
            tuple(compiled),
            frozenset(variables | set(file.optional)),
            includes,
            file.answer_type,
        )
        return _LOADED[known]

    def _tree(
        self, path: Path, source: str, lines_before: int, env: jinja2.Environment | None = None
    ) -> jinja2.nodes.Template:
        """The syntax tree of a template's text. `lines_before` it in the file count for the line of an error."""
        env = env or self._env
        try:
            tree = env.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise template_error(
                path, lines_before + (error.lineno or 1), str(error.message), _VALID_TEMPLATE
            ) from error
        except (RecursionError, MemoryError, ValueError) as error:
            raise template_error(path, lines_before + 1, _named(error), _VALID_TEMPLATE) from error
        for node in tree.find_all((jinja2.nodes.Call, jinja2.nodes.Filter, jinja2.nodes.Test)):
            if fault := _unknown(node, env):
                raise template_error(path, lines_before + node.lineno, *fault)
        return tree

    def _compile(
        self,
        path: Path,
        tree: jinja2.nodes.Template,
        line: int,
        variables: set[str],
        env: jinja2.Environment | None = None,
    ) -> jinja2.Template | str:
        """The block compiled, or its text where it shows no value."""
        try:
            template = (env or self._env).from_string(tree)  # compiling folds constants in the tree
            return template if variables else render_block(template, {})
        except _COMPILE_ERRORS as error:
            raise template_error(path, line, _named(error), _VALID_TEMPLATE) from error

    def _variables(
        self, path: Path, tree: jinja2.nodes.Template, includes: dict[str, str], above: tuple[str, ...] = ()
    ) -> set[str]:
        """The variables that a template shows, itself or by its includes."""
        try:
            variables = set(jinja2.meta.find_undeclared_variables(tree))
        except (RecursionError, jinja2.TemplateError) as error:
            raise template_error(path, 1, _named(error), _VALID_TEMPLATE) from error
        for name in jinja2.meta.find_referenced_templates(tree):
            if name is None:
                expected = 'a literal name, such as "shared/preamble.v1.jinja"'
                raise template_error(path, 1, "an include whose name is computed", expected)
            if name in above:
                raise template_error(path, 1, f"{name!r}, which includes itself", "a template that ends")
            if name not in includes:
                includes[name] = self._include_text(path, name)
                variables |= self._variables(path, self._include_tree(path, name), includes, (*above, name))
        return variables

    def _include_tree(self, path: Path, name: str) -> jinja2.nodes.Template:
        """The syntax tree of a template that another one includes."""
        if name not in self._includes:
            file = self._find(name) or path
            source = self._include_text(path, name)
            self._compile(file, self._tree(file, source, 0), 1, {""})  # reports its faults now, not at the first case
            self._includes[name] = self._tree(file, source, 0)
        return self._includes[name]

    def _include_text(self, path: Path, name: str) -> str:
        if not _INCLUDE_NAME.match(name):
            expected = 'a name below a prompt folder, such as "shared/preamble.v1.jinja"'
            raise template_error(path, 1, f"include of {name!r}", expected)
        file = self._find(name)
        if file is None:
            raise template_error(path, 1, f"include of {name!r}", "a template inside the prompt folders")
        return read_text(file)


def _check_variables(file: TemplateFile, variables: set[str]) -> None:
    """Raises PromptError, with the line, for an unknown role, a variable without one, and a template that shows nothing."""
    for name, role in file.roles.items():
        if role not in ROLES:
            line = line_of(file.text, rf"\b{name}['\"]?\s*:")
            expected = f"one of the roles {', '.join(sorted(ROLES))}"
            raise template_error(file.path, line, f"the role {role!r} of {name}", expected)
    if undeclared := sorted(variables - set(file.roles) - set(file.optional)):
        line = line_of(file.text, used_in_template(undeclared[0]))
        expected = "every variable under roles: or optional:"
        raise template_error(file.path, line, f"the variables {undeclared} without a role", expected)
    if not variables & set(file.roles):
        expected = "a template that shows the judge some of the case"
        raise template_error(file.path, 1, "no variable of roles: is used", expected)


def _unknown(node: jinja2.nodes.Node, env: jinja2.Environment) -> tuple[str, str] | None:
    """What a call, a filter or a test is that templates do not have, and what they have; None for one that they have."""
    if isinstance(node, jinja2.nodes.Filter):
        return (
            None
            if node.name in env.filters
            else (f"the filter {node.name!r}", f"one of {', '.join(sorted(env.filters))}")
        )
    if isinstance(node, jinja2.nodes.Test):
        return None if node.name in env.tests else (f"the test {node.name!r}", f"one of {', '.join(sorted(env.tests))}")
    return "a call", "values, filters and tests"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
