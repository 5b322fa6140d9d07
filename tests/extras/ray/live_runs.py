"""Runs with a language model whose cases are measured elsewhere: cases, a server with its log, and what came of a run."""

from tests.support.harness import arguments, finish, write_cases

CASES, CONCURRENCY = 60, 8
EXHAUSTIVE = "metrics.chunk_faithfulness.exhaustive=true"


class Place:
    """Cases, a server with its log, and one call store for all runs."""

    def __init__(self, folder, server):
        self.folder, self.server, self.store = folder, server, folder / "store"
        self.data = write_cases(folder / "cases.jsonl", CASES)

    def words(self, out, *words):
        common = [EXHAUSTIVE, f"store.path={self.store}", "report.formats=[markdown]"]
        return arguments(self.data, self.folder / out, self.server.url, *common, *words, concurrency=CONCURRENCY)

    def ended(self, out, *words, code=0):
        found, text = finish(self.words(out, *words), self.folder)
        assert found == code, text
        return text

    def content(self, out):
        """All files of a run that say what came of it."""
        folder = (self.folder / out / "torture" / "latest").resolve()
        paths = [*folder.glob("*.parquet"), *folder.glob("iteration-1/*.*"), *folder.glob("final/*"), folder / "gates.json"]
        return {str(p.relative_to(folder)): p.read_bytes() for p in paths if p.name[0] != "." and "journal" not in p.name}

    def same_as_one_process(self, out):
        """One process over the same replies asks nothing, and comes to the same bytes."""
        asked = len(self.server.requests())
        self.ended("local")
        assert len(self.server.requests()) == asked
        local, content = self.content("local"), self.content(out)
        assert len(local) >= 8
        assert {name: content[name] == data for name, data in local.items()} == dict.fromkeys(content, True)
