"""A built wheel carries options, prompts and data, works from an empty folder, and needs nothing but what it declares."""

import importlib.util
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.waiting import HANGS_AFTER_S

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dist/` with a wheel and a source distribution; skipped where no build backend is installed."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    dist = tmp_path_factory.mktemp("dist")
    code = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]), build.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(dist)], cwd=ROOT, check=True, capture_output=True)
    return dist


def _shipped(*folders: str) -> set[str]:
    files = (p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(ROOT).as_posix() for p in files}


def test_wheel_and_source_distribution_are_whole(built: Path) -> None:
    names = set(zipfile.ZipFile(next(built.glob("*.whl"))).namelist())
    assert {f"ragpipe/{name}" for name in _shipped("conf", "prompts")} <= names
    assert _shipped("ragpipe") <= names
    assert not [n for n in names if n.split("/")[0] not in ("ragpipe", f"ragpipe-{PROJECT['version']}.dist-info")]
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert _shipped("ragpipe", "conf", "prompts", "tests") <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert _shipped("docs") | {"mkdocs.yml", "justfile", "CHANGELOG.md", "CONTRIBUTING.md"} <= names, "what the site is made of"


def test_the_wheel_works_from_an_empty_folder(built: Path, tmp_path: Path) -> None:
    """Unpacked beside the installed dependencies: what it finds, it finds in itself."""
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    zipfile.ZipFile(next(built.glob("*.whl"))).extractall(site)
    before = {p: p.stat().st_mtime_ns for p in site.rglob("*")}

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ragpipe", *words], cwd=work, capture_output=True, text=True, timeout=HANGS_AFTER_S,
            env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        )  # fmt: skip

    info = start("--info", "searchpath", "dataset=demo")
    assert f"{site}/ragpipe/conf" in info.stdout, info.stderr
    assert start("task=init", "dir=my").returncode == 0
    done = start("--config-dir", "my", "+experiment=my")
    assert done.returncode == 0, done.stderr
    assert (work / "outputs/my/latest").exists()
    assert {p: p.stat().st_mtime_ns for p in site.rglob("*")} == before  # nothing is written into the installation
