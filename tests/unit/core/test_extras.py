"""What a message says to install is what the extra of the package brings."""

import shlex
import tomllib

import pytest

from ragpipe.core.extras import EXTRAS, install_command
from tests.support.pages import ROOT


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_command_installs_the_packages_of_the_extra(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shlex.split(install_command(extra)) == ["pip", "install", *project["optional-dependencies"][extra]]


@pytest.mark.parametrize("folder", ["ragpipe", "conf", "docs"])
def test_nobody_is_sent_to_the_package_of_that_name_on_an_index(folder: str) -> None:
    suffixes = (".py", ".yaml", ".md")
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    assert [path.name for path in files if "'ragpipe[" in path.read_text(encoding="utf-8")] == []
