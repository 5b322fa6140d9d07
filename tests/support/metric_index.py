"""The lists of metrics in `ragpipe/metrics/judged/__init__.py` and `ragpipe/metrics/computed/__init__.py`.

Each line is a metric file with the first sentence of its docstring. `python -m tests.support.metric_index` writes them.
"""

import ast
import sys
from pathlib import Path

COMMAND = "python -m tests.support.metric_index"
METRICS = Path(__file__).resolve().parents[2] / "ragpipe" / "metrics"
HEADS = {
    "judged": "Metrics that ask a judge: each costs calls. One metric per file.",
    "computed": "Metrics that ask no judge: computed from labels, strings, vectors or recorded values. One metric per file.",
}


def metric_files(room: str) -> list[Path]:
    return sorted(path for path in (METRICS / room).glob("*.py") if path.name != "__init__.py")


def index_of(room: str) -> str:
    lines = []
    for path in metric_files(room):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"- `{path.stem}`: {docstring.partition(chr(10))[0]}")
    return f'"""{HEADS[room]}\n\n' + "\n".join(lines) + '\n"""\n'


def stale_rooms() -> list[str]:
    """The rooms whose list is not that of their files."""
    return [room for room in HEADS if (METRICS / room / "__init__.py").read_text(encoding="utf-8") != index_of(room)]


def update() -> None:
    for room in HEADS:
        (METRICS / room / "__init__.py").write_text(index_of(room), encoding="utf-8")


if __name__ == "__main__":
    update()
    sys.exit()
