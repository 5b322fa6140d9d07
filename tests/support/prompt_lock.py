"""`prompts/versions.lock`: the hash of every published prompt template, comments stripped, includes among them; and of every
published file of graded examples.

A changed template asks every stored question again and cuts off every earlier number, so a published version never
changes: write the next version. `python -m tests.support.prompt_lock` adds new versions and takes over edits of those that
no commit has locked yet. It refuses a change of a committed one, unless `--unreleased NAME` says that no release has it
(NAME as in the lock: `faithfulness/verify.v1`).
"""

import argparse
import subprocess
import sys
from pathlib import Path

from ragpipe.core.resources import prompts_dir
from ragpipe.judge.prompt_library import PromptLibrary, read_graded_examples

LOCK = Path("prompts", "versions.lock")
COMMAND = "python -m tests.support.prompt_lock"
_HEAD = f"# sha256 of every published prompt template. Written by `{COMMAND}`; a locked line never changes.\n"
_ROOT = Path(__file__).resolve().parents[2]


def template_paths() -> list[Path]:
    return sorted(path for path in prompts_dir().glob("*/*.jinja") if path.parent.name != "shared")


def example_paths() -> list[Path]:
    return sorted(prompts_dir().glob("*/*.examples.*.yaml"))


def current_hashes() -> dict[str, str]:
    """The hash of each shipped template by `<folder>/<step>.<version>`, of graded examples by `<folder>/<step>.examples.<version>`."""
    library = PromptLibrary([prompts_dir()])
    hashes = {}
    for path in template_paths():
        step, version, _ = path.name.split(".")
        hashes[f"{path.parent.name}/{step}.{version}"] = library.load(path.parent.name, step, version).sha256
    for path in example_paths():
        step, _, version, _ = path.name.split(".")
        name = f"{path.parent.name}/{step}"
        hashes[f"{name}.examples.{version}"] = read_graded_examples(path, name, version).sha256
    return dict(sorted(hashes.items()))


def locked_hashes() -> dict[str, str]:
    """The hashes of the lock file by name; empty without a file."""
    path = _ROOT / LOCK
    return _parse_lock(path.read_text(encoding="utf-8")) if path.exists() else {}


def uncommitted_names() -> frozenset[str]:
    """The locked versions that the last commit has not locked: drafts. Empty where git cannot tell."""
    command = ["git", "show", f"HEAD:./{LOCK.as_posix()}"]
    try:
        result = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    except (OSError, subprocess.CalledProcessError):
        return frozenset()
    return frozenset(locked_hashes()) - _parse_lock(result.stdout).keys()


def _parse_lock(text: str) -> dict[str, str]:
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: digest for name, digest in rows}


def problems(locked: dict[str, str], current: dict[str, str]) -> list[str]:
    """What is wrong, each with the fix; empty when lock and templates agree."""
    lines = []
    for name, digest in current.items():
        if name not in locked:
            lines.append(f"{name} is not in {LOCK}: run `{COMMAND}`")
        elif locked[name] != digest:
            lines.append(
                f"{name} was changed, and a published version never changes: restore it and write the next version; "
                f"if no release has it yet, run `{COMMAND} --unreleased {name}`"
            )
    for name in locked.keys() - current.keys():
        lines.append(
            f"{name} was removed, and a published version never goes: restore it; "
            f"if no release has it yet, run `{COMMAND} --unreleased {name}`"
        )
    return sorted(lines)


def update(unreleased: frozenset[str] = frozenset()) -> list[str]:
    """Add new versions to the lock and take over changes of drafts and of the unreleased ones. Returns what it refused."""
    locked, current = locked_hashes(), current_hashes()
    open_names = unreleased | uncommitted_names()
    kept = {name: digest for name, digest in locked.items() if name not in open_names}
    missing = {name: digest for name, digest in current.items() if name not in kept}
    lock = dict(sorted({**kept, **missing}.items()))
    (_ROOT / LOCK).write_text(_HEAD + "".join(f"{name} {digest}\n" for name, digest in lock.items()), encoding="utf-8")
    return problems(lock, current)


def main(arguments: list[str]) -> int:
    """Returns 1 when something was refused."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Update prompts/versions.lock.")
    parser.add_argument("--unreleased", action="append", default=[], metavar="NAME", help="accept a change of this version")
    refused = update(frozenset(parser.parse_args(arguments).unreleased))
    print("\n".join(refused) or f"{LOCK} is up to date")
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
