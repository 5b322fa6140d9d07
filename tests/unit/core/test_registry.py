"""The registry of features: what is named exists, plugins are found late, and what a plugin does wrong is said."""

import sys

import pytest

from ragpipe.core import registry
from ragpipe.core.errors import ConfigError


@pytest.mark.parametrize("kind", registry.KINDS)
def test_everything_that_is_named_is_there(kind):
    assert list(registry.everything(kind)) == [name for name in registry.names(kind) if registry.find(kind, name) is not None]


def test_every_task_has_its_options_and_can_run():
    tasks = registry.everything("task")
    assert sorted(tasks) == list(registry.option_files("task"))
    assert all(callable(task.run) for task in tasks.values())


@pytest.fixture
def plugin(tmp_path, monkeypatch, request):
    """A package of its own name with these ENTRIES, which the configuration may name."""
    name = f"plugin_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(f"{request.param}\n\ndef read(): pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_named", [])
    return name


@pytest.mark.parametrize("plugin", ["ENTRIES = {'reader': {'xlsx': __name__ + ':read'}}"], indirect=True)
def test_a_package_of_plugins_is_imported_when_a_name_is_not_found_here(plugin):
    registry.use([plugin])
    assert registry.find("task", "evaluate").__name__ == "ragpipe.cli.tasks.evaluate"
    assert plugin not in sys.modules
    assert registry.find("reader", "xlsx").__name__ == "read"
    assert "xlsx" in registry.names("reader")
    assert "xlsx" not in registry.everything("reader")
    assert registry.find("reader", "ods") is None


@pytest.mark.parametrize(
    ("plugin", "found"),
    [
        ("ENTRIES = {'judges': {}}", "the kind 'judges'"),
        ("ENTRIES = {'judge': {'llm': 'mine:Judge'}}", "judge llm, which is ragpipe.judge.settings:JudgeSettings already"),
        ("import no_such_module", "whose import fails: ModuleNotFoundError: No module named 'no_such_module'"),
        ("ENTRIES = {'reader': {'ods': __name__ + ':Missing'}}", "has no attribute 'Missing'"),
    ],
    indirect=["plugin"],
)  # fmt: skip
def test_what_a_plugin_does_wrong_is_said(plugin, found):
    registry.use([plugin])
    with pytest.raises(ConfigError) as refused:
        registry.find("reader", "ods")
    assert found in str(refused.value)


@pytest.mark.parametrize(("here", "is_found"), [("elsewhere", True), (".", False)])
def test_an_installed_distribution_is_found_by_its_entry_point(here, is_found, tmp_path, monkeypatch):
    """Not one that lies in the working folder, whoever wrote that."""
    name = f"distribution_{is_found}"
    (tmp_path / f"{name}.py").write_text(f"ENTRIES = {{'reader': {{'xlsx': '{name}:read'}}}}\n\ndef read(): pass\n", "utf-8")
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nmine = {name}\n", "utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / here)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_named", [])
    registry._others.cache_clear()
    try:
        assert (registry.find("reader", "xlsx") is not None) == is_found
    finally:
        registry._others.cache_clear()
