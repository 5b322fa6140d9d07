"""One process composes again and again (a sweep, a notebook): what changed between two compositions is seen."""

import pytest

from ragpipe.cli.command_line import compose
from ragpipe.core.errors import ConfigError

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test

WORDS = ["dataset=demo", "metrics=[retrieval]", "+experiment=mine"]
SECRET = "w8Jc2LrV5tQz0XyB"


@pytest.fixture(autouse=True)
def experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    _write(file, "name: first")
    return file


def _write(file, line):
    file.write_text(f"# @package _global_\n{line}\n", encoding="utf-8")


def test_an_edit_of_the_same_size_is_seen(experiment):
    assert compose(WORDS).name == "first"
    _write(experiment, "name: other")
    assert compose(WORDS).name == "other"


def test_a_key_that_was_set_meanwhile_is_refused_in_a_file_that_was_read_before(experiment, monkeypatch):
    _write(experiment, f"name: {SECRET}")
    assert compose(WORDS).name == SECRET
    monkeypatch.setenv("MY_API_KEY", SECRET)
    with pytest.raises(ConfigError, match="MY_API_KEY"):
        compose(WORDS)


def test_a_refused_file_is_refused_again(experiment):
    _write(experiment, "name: a\nname: b")
    for _ in range(2):
        with pytest.raises(ConfigError, match="twice"):
            compose(WORDS)


def test_a_path_beside_a_file_is_right_from_another_folder(experiment, monkeypatch):
    """The folder stays on the search path by `config_dir`."""
    _write(experiment, "dataset:\n  path: here:cases.jsonl")
    conf = experiment.parents[1]
    words = ["dataset=jsonl", *WORDS[1:]]
    assert compose(words, config_dir=str(conf)).dataset.path == "conf/experiment/cases.jsonl"
    monkeypatch.chdir(experiment.parent)
    assert compose(words, config_dir=str(conf)).dataset.path == "cases.jsonl"


def test_a_file_of_windows_reads_the_same(experiment):
    """With a byte order mark and CRLF: also its header, which says where it belongs."""
    text = "# @package _global_\r\nname: >-\r\n  first\r\nseed: 3\r\n"
    experiment.write_bytes(b"\xef\xbb\xbf" + text.encode())
    config = compose(WORDS)
    assert (config.name, config.seed) == ("first", 3)


def test_what_one_composition_sets_in_a_file_without_a_package_is_not_in_the_next(experiment):
    """An experiment is merged into the whole configuration, not below a key."""
    _write(experiment, "scoring:\n  weights: {retrieval_score: 2}\ndataset:\n  limit: 5")
    words = [*WORDS, "scoring.weights.retrieval_score=3", "dataset.limit=4"]
    assert [compose(words).scoring.weights["retrieval_score"], compose(words).dataset.limit] == [3, 4]
    again = compose(WORDS)
    assert (again.scoring.weights["retrieval_score"], again.dataset.limit) == (2, 5)


def test_a_value_of_hydras_own_is_there_and_its_section_is_not():
    assert compose([*WORDS, "name='${hydra:job.name}'"]).name == "ragpipe"
    # `hydra.help.app_name: ${hydra.job.name}`: what stands within the section is found too
    assert compose([*WORDS, "name='${hydra:help.app_name}'"]).name == "ragpipe"
    with pytest.raises(ConfigError, match="hydra"):
        compose([*WORDS, "name='${hydra.job.name}'"])
