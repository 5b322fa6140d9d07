"""CONTRIBUTING.md shows the commands of the justfile, and names files that exist."""

import re

from tests.support.pages import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def recipes() -> dict[str, list[str]]:
    """The commands of each recipe of the justfile, without those that only list the recipes."""
    commands: dict[str, list[str]] = {}
    name = ""
    for line in (ROOT / "justfile").read_text(encoding="utf-8").splitlines():
        if head := re.match(r"([a-z][a-z-]*)[^:]*:$", line):
            name = head[1]
        elif line.startswith("    ") and name != "default":
            commands.setdefault(name, []).append(line.strip().replace(" {{NAME}} {{OPTIONS}}", ""))
    return commands


def test_the_page_shows_every_recipe_and_its_commands() -> None:
    assert set(recipes()) == {
        "fast",
        "test",
        "slow",
        "browser",
        "oracles",
        "detectors",
        "ray",
        "wheel",
        "check",
        "docs",
        "docs-serve",
        "new-metric",
    }
    for name, commands in recipes().items():
        assert f"`just {name}" in PAGE
        for command in commands:
            assert f"`{command}" in PAGE, f"CONTRIBUTING.md does not show `{command}` of the recipe {name}"


def test_the_fast_rooms_of_recipe_and_workflow_are_the_same() -> None:
    (fast,) = recipes()["fast"]
    assert f"run: {fast}\n" in WORKFLOW
    assert all((ROOT / word).exists() for word in fast.split() if word.startswith("tests/"))


def test_every_file_that_the_page_names_exists() -> None:
    names = [
        name
        for name in re.findall(r"`([\w./-]+/[\w./-]*)`", PAGE)
        if name.split("/")[0] in ("ragpipe", "tests", "docs", "conf", "prompts", ".ci")
    ]
    assert len(names) > 20
    missing = [name for name in names if not (ROOT / name).exists()]
    assert missing == []
