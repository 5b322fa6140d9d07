"""Broken configurations: what a user gets wrong, and what the answer must name. Rows are those of the fault list."""

from dataclasses import dataclass, field

RUN = ("dataset=mine", "metrics=[retrieval]")
SENTINEL = "sk-SENTINEL0123456789abcdefXYZ"  # looks like a key, is none


@dataclass(frozen=True)
class Broken:
    """`files` are written below the working directory; every text of `says` must stand in the answer, none of `hides`."""

    id: str
    words: tuple[str, ...]
    says: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    hides: tuple[str, ...] = ()


def experiment(body: str, name: str = "x") -> dict[str, str]:
    return {f"conf/experiment/{name}.yaml": f"# @package _global_\ndefaults:\n  - override /dataset: mine\n{body}"}


def _laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "# @package _global_\n" + "\n".join(lines) + "\n"


X = "+experiment=x"
CASES: tuple[Broken, ...] = (
    # unknown names (E1)
    Broken("E1 unknown key", (*RUN, "judge.treshold=0.5"), ("judge.treshold", "command line", "did you mean threshold?")),
    Broken("E1 unknown group", (*RUN, "judg=llm"), ("judg", "did you mean judge=llm?")),
    Broken("E1 unknown experiment", ("+experiment=xx",), ("experiment", "'xx'", "x"), experiment("name: x\n")),
    Broken("E1 experiment without plus", ("experiment=x",), ("experiment", "+experiment="), experiment("name: x\n")),
    Broken("E1 unknown metric", ("dataset=mine", "metrics=[retreival]"), ("metrics", "'retreival'", "retrieval")),
    Broken("E1 unknown parameter", (*RUN, "metrics.retrieval.kk=3"), ("metrics.retrieval.kk", "did you mean k?")),
    Broken("E1 unknown key in a file", (X,), ("conf/experiment/x.yaml:5", "judge.treshold", "did you mean threshold?"),
           experiment("judge:\n  treshold: 0.5\n")),
    Broken("E1 no data set", ("metrics=[retrieval]",), ("dataset", "+experiment=NAME")),
    Broken("E1 no metric", ("dataset=mine",), ("metrics", "metrics=[NAME,...]")),
    # types and ranges (E2)
    Broken("E2 range of a judge", (*RUN, "judge.threshold=2"), ("judge.threshold=2", "less than or equal to 1")),
    Broken("E2 true is no number", (*RUN, "iterations=true"), ("iterations", "true (true/false)", "whole number")),
    Broken("a word that is an experiment", ("quickstart",), ("did you mean +experiment=quickstart?",)),
    Broken("a word that is a file which is not there", ("data/absent.jsonl",), ("no such file or folder", "python -m ragpipe FILE")),
    Broken("a key of another judge", (*RUN, "judge.concurrency=8"), ("judge.concurrency", "a key of judge=llm")),
    Broken("the name of a model as judge", (*RUN, "judge=gpt4"), ("judge", "'gpt4'", "judge=llm judge.model=openai/gpt4-DATE")),
    Broken("a provider's model as judge", (*RUN, "judge=openai/gpt-4o"),
           ("judge", "'openai/gpt-4o'", "recorded, rules", "judge=llm judge.model=openai/gpt-4o-DATE")),
    Broken("a model without a provider", (*RUN, "judge=llm", "judge.model=gpt-4o"),
           ("judge.model", "provider/model", "here perhaps openai/gpt-4o-DATE")),
    Broken("a callable outside the plugins", (*RUN, "system=python", "system.callable=chain:chain.invoke"),
           ("system.callable", "chain:chain.invoke", "plugins=[chain]"), hides=("[A-Za-z",)),
    Broken("a format as report", (*RUN, "report=html"), ("report", "'html'", "'report.formats=[terminal,html]'")),
    Broken("a word that is a metric", ("dataset=mine", "faithfulness"), ("did you mean metrics=[faithfulness]?",)),
    Broken("a word that is near nothing", (*RUN, "zzzz"), ("zzzz", "--help lists the arguments and options"), hides=("did you mean",)),
    Broken("an option of other programs", (*RUN, "--dry-run"), ("--dry-run", "did you mean task=plan?")),
    Broken("a misspelt key of a task", ("task=compare", "bse=x", "candidate=y"),
           ("bse", "task=compare does not know", "base, candidate, run", "did you mean base?")),
    Broken("E2 transport", (*RUN, "transport.kind=lively"), ("transport.kind", "did you mean live?")),
    # no end (E3)
    Broken("E3 no timeout", (*RUN, "judge=llm", "judge.model=openai/m-2024-07-18", "judge.timeout_s=null"),
           ("judge.timeout_s", "finite")),
    Broken("alias as model", (*RUN, "judge=llm", "judge.model=openai/gpt-4o"), ("judge.model", "alias", "allow_unpinned")),
    Broken("??? left", ("metrics=[retrieval]", "system=http", "dataset=mine"), ("system.url", "http.yaml:", "system.url=")),
    # weights (E4)
    Broken("E4 negative weight", (*RUN, "scoring.weights.retrieval_score=-1"), ("scoring.weights.retrieval_score", "-1")),
    Broken("E4 weight is no number", (*RUN, "scoring.weights.retrieval_score=nan"), ("scoring.weights.retrieval_score",)),
    Broken("E4 threshold off the scale", (*RUN, "scoring.thresholds.retrieval_score=7"), ("scoring.thresholds.retrieval_score", "0 to 1")),
    # YAML (E5)
    Broken("E5 tab", (X,), ("conf/experiment/x.yaml:5", "tab", "spaces"), experiment("judge:\n\tthreshold: 0.5\n")),
    Broken("E5 duplicate key", (X,), ("conf/experiment/x.yaml:5", "'seed' twice", "line 4"), experiment("seed: 1\nseed: 2\n")),
    Broken("E5 tag", (X,), ("conf/experiment/x.yaml:4: name", "!!python/object/apply:os.system"),
           experiment("name: !!python/object/apply:os.system [ls]\n")),
    Broken("E5 list at the top", (X,), ("conf/experiment/x.yaml:2", "a mapping"), {"conf/experiment/x.yaml": "# x\n- a\n- b\n"}),
    Broken("E5 two documents", (X,), ("conf/experiment/x.yaml:3", "another document"), {"conf/experiment/x.yaml": "# x\na: 1\n---\nb: 1\n"}),
    Broken("E5 no is false", (X,), ("conf/experiment/x.yaml:4", "name", "false (true/false)", "quotes"), experiment("name: no\n")),
    Broken("E5 value with a colon", (X,), ("conf/experiment/x.yaml:4", "quotes"), experiment("name: a: b\n")),
    Broken("E5 Latin-1", (X,), ("conf/experiment/x.yaml:2", "UTF-8"), {"conf/experiment/x.yaml": "# x\nname: caf\udce9\n"}),
    Broken("E5 billion laughs", (X,), ("conf/experiment/x.yaml:", "expanded"), {"conf/experiment/x.yaml": _laughs()}),
    Broken("E5 too large", (X,), ("conf/experiment/x.yaml", "1,000,000"), {"conf/experiment/x.yaml": "# " + "x" * 1_000_001}),
    # interpolations (E7)
    Broken("E7 loop", (X,), ("conf/experiment/x.yaml:", "Recursive interpolation"),
           experiment("name: ${judge.threshold}\njudge:\n  threshold: ${name}\n")),
    Broken("E7 missing key", (X,), ("conf/experiment/x.yaml:4", "nowhere"), experiment("name: ${nowhere}\n")),
    Broken("E7 missing variable", (*RUN, "store.path=${oc.env:RAGPIPE_NOT_SET}"), ("store.path", "RAGPIPE_NOT_SET")),
    # sweeps (E11)
    Broken("E11 nothing to sweep", ("-m", *RUN, "seed=range(1,1)"), ("seed", "nothing to sweep over")),
    Broken("E11 more jobs than anyone waits for", ("-m", *RUN, "seed=range(0,1000000000)"), ("seed", "10,000")),
    Broken("E11 nothing to sweep in a file", ("-m", X, "task=plan"), ("conf/experiment/x.yaml:7: seed", "nothing to sweep over"),
           experiment("hydra:\n  sweeper:\n    params:\n      seed: range(1,1)\n")),
    Broken("E11 a sweep without -m", (*RUN, "seed=1,2"), ("seed", "-m")),
    # prompts (F1)
    Broken("F1 missing version", ("dataset=mine", "metrics=[faithfulness]", "metrics.faithfulness.prompts.verify=v99"),
           ("metrics.faithfulness.prompts.verify", "v1")),
    Broken("F1 prompt folder", (*RUN, "prompt_dirs=[nowhere]"), ("prompt_dirs", "nowhere")),
    # classes (P11)
    Broken("P11 class outside", (X,), ("conf/experiment/x.yaml:6", "metrics.m.class", "os.system", "plugins"),
           experiment("metrics:\n  m:\n    class: os.system\n")),
    Broken("P11 class of no package of yours", (X, "plugins=[json]"), ("conf/experiment/x.yaml:6", "metrics.m.class", "packages of yours"),
           experiment("metrics:\n  m:\n    class: json.JSONDecoder\n")),
    Broken("P11 plugin that is not there", (*RUN, "plugins=[no_such_package_here]"), ("plugins", "no_such_package_here")),
    Broken("P11 _target_ in a file", (X,), ("conf/experiment/x.yaml:7", "_target_"),
           experiment("hydra:\n  callbacks:\n    c:\n      _target_: os.system\n")),
    Broken("P11 system outside", (*RUN, "system=python", "system.callable=os:getcwd"), ("system.callable", "plugins")),
    # keys (P12)
    Broken("P12 key as a key", (*RUN, f"judge.api_key={SENTINEL}"), ("api_key_env",), hides=(SENTINEL,)),
    Broken("P12 key as a model", (*RUN, "judge=llm", f"judge.model={SENTINEL}"), ("judge.model", "not shown"), hides=(SENTINEL,)),
    Broken("P12 key where its name belongs", (*RUN, "judge=llm", f"judge.api_key_env={SENTINEL}"),
           ("judge.api_key_env", "name"), hides=(SENTINEL,)),
    Broken("P12 key as a word of its own", (*RUN, SENTINEL), ("not shown",), hides=(SENTINEL,)),
    Broken("P12 key in a file", (X,), ("conf/experiment/x.yaml:5", "judge.api_key", "api_key_env"),
           experiment(f"judge:\n  api_key: {SENTINEL}\n"), hides=(SENTINEL,)),
    Broken("P12 key in an option", (*RUN, "judge=my", "judge.model=openai/m-2024-07-18"), ("conf/judge/my.yaml:5: season", "not shown"),
           {"conf/judge/my.yaml": f"# x\ndefaults:\n  - llm\n  - _self_\nseason: {SENTINEL}\n"}, hides=(SENTINEL,)),
    Broken("P12 password in a URL", (*RUN, "judge=llm", "judge.api_base=http://me:hunter22@h/v1"), ("judge.api_base",), hides=("hunter22",)),
    # names of scores
    Broken("scores of one name", (*RUN, "+metrics.again.class=RetrievalMetric"),
           ("command line", "metrics.again", "hit@1", "and 23 more", "metrics.retrieval", "metrics.again.prefix=...")),
    Broken("scores named like a column", (*RUN, "+metrics.answer.class=AttributionHitMetric"),
           ("metrics.answer", "a column of records.parquet", "another name")),
    # words
    Broken("word without =", (*RUN, "seed"), ("seed", "key=value")),
    Broken("word without a key", (*RUN, "=3"), ("=3", "key=value")),
    Broken("unclosed quote", (*RUN, "name='a"), ("name='a", "quotes")),
    Broken("unknown switch", ("--foo",), ("--foo", "--help")),
    Broken("completion without a shell", ("-sc", "query=bash"), ("COMP_LINE",)),
    Broken("no such folder", ("--config-dir", "nowhere", *RUN), ("--config-dir", "nowhere")),
    Broken("task=init without a folder", ("task=init",), ("dir", "init.yaml")),
    Broken("task=init into a wrong name", ("task=init", "dir=a b"), ("dir", "letters")),
)  # fmt: skip

MINE = "# The data of these tests.\nname: mine\npath: data/mine.jsonl\n"
DATA = '{"id": "a", "question": "q?", "answer": "x", "contexts": ["x"], "relevant_chunks": ["c1"]}\n'
