"""Deletes one extra after the other from a copy of the tree, and runs the rest: `python -m tests.support.without_extras [NAME ...]`.

Of an extra go its folder, its tests, its page, the lines that list the page and the links to it. Schemas and generated pages are made anew, as after any change of settings.
Then every module is imported, `--help` is printed, the quickstart is run, and the tests of `--tests` (the whole default suite:
`--tests tests`). Prints a table; the exit code is the number of extras without which the rest does not pass.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = sorted(path.parent.name for path in (ROOT / "ragpipe" / "extras").glob("*/__init__.py"))
TESTS = [
    *("tests/unit/core", "tests/unit/cli", "tests/unit/data/test_recognition.py", "tests/unit/test_layers.py"),
    *("tests/unit/docs", "tests/integration/cli/test_first_run.py", "tests/integration/cli/test_rescore.py"),
]
IMPORTS = """
import importlib, pkgutil, ragpipe
for module in pkgutil.walk_packages(ragpipe.__path__, "ragpipe."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def main(words: list[str]) -> int:
    """Try each of the named extras, or all. Returns how many cannot be deleted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="names of extras; default: all")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    options = parser.parse_args(words)
    wrong = 0
    for extra in options.extras or EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            results = _without(extra, Path(folder) / "tree", options.tests)
        failed = [f"{name}: {text}" for name, text in results.items() if text]
        wrong += bool(failed)
        print(f"{extra:<12} {'passes without it' if not failed else ''}", *failed, sep="\n    " if failed else "")
    return wrong


def _without(extra: str, tree: Path, tests: list[str]) -> dict[str, str]:
    """What each step ends with where the extra is deleted: its last lines, or nothing where it passes."""
    _copy(tree)
    gone = [*tree.glob(f"**/extras/{extra}"), tree / "docs" / "extras" / f"{extra}.md"]
    for path in gone:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for listing in (tree / "mkdocs.yml", tree / "docs" / "README.md"):
        lines = listing.read_text(encoding="utf-8").splitlines(keepends=True)
        listing.write_text("".join(line for line in lines if f"extras/{extra}.md" not in line), encoding="utf-8")
    link = re.compile(rf"\[([^\]]*)\]\((?:[^)]*/)?{extra}\.md[^)]*\)")
    for page in (*tree.glob("*.md"), *tree.glob("docs/**/*.md"), tree / "docs" / "generate.py"):
        page.write_text(link.sub(r"\1", page.read_text(encoding="utf-8")), encoding="utf-8")
    python = [sys.executable, "-m"]
    steps = {
        "imports": [sys.executable, "-c", IMPORTS],
        "help": [*python, "ragpipe", "--help"],
        "schemas": [*python, "ragpipe", "task=schema", "dir=conf/schema"],
        "pages": [sys.executable, "docs/generate.py"],
        "quickstart": [*python, "ragpipe", "+experiment=quickstart", "output_dir=../out"],
        "tests": [*python, "pytest", "-q", "-p", "no:cacheprovider", *(name for name in tests if (tree / name).exists())],
    }
    return {name: _end_of(command, tree) for name, command in steps.items()}


def _copy(tree: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)


def _end_of(command: list[str], tree: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(tree.parent / "pycache")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else "\n        ".join((done.stdout + done.stderr).strip().splitlines()[-12:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
