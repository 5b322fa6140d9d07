"""What ragpipe composes is what Hydra composes over the same folders; composed again, it sees what changed."""

import random
from typing import Any

import pytest
import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from ragpipe.cli import command_line
from ragpipe.cli.command_line import compose
from ragpipe.cli.composer import composing
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import conf_dir
from tests.support.thoroughness import some_of

pytestmark = pytest.mark.slow  # compositions: over 30 ms a test
CHOICES = {
    "dataset": ("demo", "ragas", "trec"), "judge": ("rules", "llm", "recorded"), "system": ("http", "python"), "runner": ("local",),
    "metrics": ("[retrieval]", "[faithfulness,format]", "[groundedness,citation]"), "embedder": ("none", "minilm"), "task": ("plan", "runs"),
    "+experiment": ("quickstart", "demo_baseline", "ragtruth"), "+mode": ("quick", "debug"), "scoring/diagnosis": ("none",),
    "+judge@jury.members.a": ("llm",), "transport": ("stored", "live"), "dataset@other": ("demo",), "judge.nope": ("1",),
}  # fmt: skip
KEYS = ("++seed=3", "++dataset.limit=2", "++scoring.weights.faithfulness=0.5", "++judge.threshold=.5", "++name=x", "+name=y", "seed=4",
        "++metrics.retrieval.k=[1,2]", "~publish", "~metrics.format", "++store.path='a b'", "++plugins=[a]", "+jury.members.b={kind: x}",
        "++a.b.c=1e3", "nowhere=1", "~dataset", "++judge=x")  # fmt: skip


def composed(words, folder=None):
    """ragpipe's configuration as plain data, or None where it is refused."""
    try:
        with composing(None if folder is None else str(folder)) as composer:
            plain: Any = OmegaConf.to_container(composer.compose(words), resolve=False)
    except ConfigError:
        return None
    del plain["hydra"]
    return plain


def by_hydra(words, folder=None):
    """What `hydra.compose` gives, or None where it refuses."""
    search = [] if folder is None else [f"hydra.searchpath=[file://{folder}]"]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        try:
            return OmegaConf.to_container(hydra_compose("ragpipe", [*words, *search]), resolve=False)
        except (HydraException, yaml.YAMLError, ValueError, AssertionError):
            return None


def alike(left, right):
    """Equal, but for `here:PATH`, which ragpipe alone knows and replaces when it reads a file."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(alike, left, right))
    if isinstance(right, str) and right.startswith("here:"):
        return isinstance(left, str) and left.endswith(right.removeprefix("here:").replace("../", ""))
    return type(left) is type(right) and (left == right or (left != left and right != right))


@pytest.mark.parametrize("seed", some_of(range(300), 8))
def test_random_words_compose_as_hydra_composes_them(seed):
    draw = random.Random(seed)
    groups = draw.sample(sorted(CHOICES), draw.randint(0, 4))
    words = [f"{group}={draw.choice(CHOICES[group])}" for group in groups] + draw.sample(KEYS, draw.randint(0, 3))
    ours, expected = composed(words), by_hydra(words)
    assert (ours is None) == (expected is None), words
    assert ours is None or alike(ours, expected), words


VALUES = ("1e3", "1_000", "0o17", "017", "1:30", "2024-01-01", ".5", "1.", "+.inf", ".NaN", "yes", "no", "~", "0x1F", "1e", "'1'", "-1e-3",
          "[a, 1e3]", "{x: .5}", "!!str 3", "|\n  text", "&a b", "${seed}", "true", "1_0.0_1", "12e03", "-.5E+3")  # fmt: skip
HEADERS = ("", "# @package _global_\n", "# @package _group_\n", "# @package foo.bar\n", "# a comment\n", "\n# @package _global_.baz\n")


def write_folder(folder, draw):
    """Options that choose each other, in three groups of which one is inside another, and an experiment over them."""
    for group, names in {"one": "ab", "one/in": "cd", "two": "ef"}.items():
        for name in names:
            items: list[Any] = []
            if group == "one" and draw.random() < 0.5:
                items.append({f"in{draw.choice(['', '@there', '@_here_', '@_global_.q'])}": draw.choice("cd")})
            if draw.random() < 0.5:
                items.insert(draw.randint(0, len(items)), "_self_")
            if draw.random() < 0.2:
                items.append({"optional /two@_global_": "none"})
            write_option(folder / group / f"{name}.yaml", items, draw)
    items = [{"/one": draw.choice("ab")}, {"/two@place": draw.choice("ef")}, {"override /judge": draw.choice(["llm", "recorded"])}]
    items += draw.sample(["_self_", {"/two": "e"}, {"override /metrics": ["format"]}, {"override /one/in": "c"}], 2)
    draw.shuffle(items)
    write_option(folder / "experiment" / "mine.yaml", items, draw)


def write_option(path, items, draw):
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = yaml.safe_dump({"defaults": items}) if items else ""
    keys = "".join(f"{key}: {draw.choice(VALUES)}\n" for key in draw.sample("uvwxyz", 3))
    path.write_text(f"{draw.choice(HEADERS)}{listed}{keys}nested: {{k: {draw.randint(0, 9)}}}\n", encoding="utf-8")


@pytest.mark.parametrize("seed", some_of(range(200), 6))
def test_random_folders_compose_as_hydra_composes_them(seed, tmp_path):
    draw = random.Random(seed)
    write_folder(tmp_path, draw)
    words = ["+experiment=mine", *draw.sample(["one=b", "+two=f", "++nested.k=7", "judge=rules", "+one/in=d"], draw.randint(0, 2))]
    ours, expected = composed(words, tmp_path), by_hydra(words, tmp_path)
    assert (ours is None) == (expected is None), words
    assert ours is None or alike(ours, expected), words


LIVE = ("system=http", "dataset=jsonl", "dataset.path=good.jsonl", "metrics=[format]")


def _problems(*words):
    with pytest.raises(ConfigError) as caught:
        command_line.compose(words)
    return caught.value.problems


@pytest.mark.parametrize(("words", "key", "fix"), [
    (("+expermient=quickstart",), "expermient", "did you mean +experiment=quickstart?"),
    (("tsak=plan",), "tsak", "did you mean task=plan?"),
    ((*LIVE, "system.ulr=http://x/ask"), "system.url", "the command line has system.ulr: did you mean system.url?"),
    (("+experiment=quickstart", "judge=llm"), "judge.model",
     "pass judge.model=... (for example judge.model=openai/gpt-4o-mini-2024-07-18) or set it in your experiment"),
])  # fmt: skip
def test_one_message_names_the_word(words, key, fix):
    problems = _problems(*words)
    assert [(problem.key, problem.fix) for problem in problems] == [(key, fix)]


def test_an_address_without_its_scheme_and_a_file_of_nearly_this_name(here):
    [problem] = _problems(*LIVE, "system.url=127.0.0.1:80")
    assert problem.expected.startswith("an address that begins with http:// or https://")
    (here / "inner").mkdir()
    for name in ("good.jsonl", "good.csv", "other.jsonl", "inner/good.jsonl"):
        (here / name).touch()
    assert _problems("god.jsonl")[0].fix == "did you mean good.jsonl?"
    assert _problems("inner/god.jsonl")[0].fix == "did you mean inner/good.jsonl?"
    assert _problems("nowhere/god.jsonl")[0].fix.startswith("there is no such file or folder here")


def test_an_experiment_in_a_folder_of_its_name(here):
    (here / "good" / "experiment").mkdir(parents=True)
    (here / "good" / "experiment" / "good.yaml").touch()
    assert _problems("+experiment=good")[0].fix == "it is in the folder good/: add --config-dir good"
    assert "--config-dir" not in _problems("+experiment=goods")[0].fix


WORDS = ["dataset=demo", "metrics=[retrieval]", "+experiment=mine"]
SECRET = "w8Jc2LrV5tQz0XyB"


@pytest.fixture
def experiment(here):
    file = here / "conf" / "experiment" / "mine.yaml"
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


def test_a_value_of_hydras_own_is_there_and_its_section_is_not(experiment):
    assert compose([*WORDS, "name='${hydra:job.name}'"]).name == "ragpipe"
    # `hydra.help.app_name: ${hydra.job.name}`: what stands within the section is found too
    assert compose([*WORDS, "name='${hydra:help.app_name}'"]).name == "ragpipe"
    with pytest.raises(ConfigError, match="hydra"):
        compose([*WORDS, "name='${hydra.job.name}'"])
