"""What is written once in the package."""

from __future__ import annotations

import ast

from tests.support.source_trees import FILES, source_nodes


def test_the_form_of_an_id_is_written_once() -> None:
    """Of a sha256 in `ragpipe.core.digest`, of a run's id in `ragpipe.store.run.run_folder`."""
    forms: dict[str, list[str]] = {"[0-9a-f]{64}": [], "[0-9a-f]{12}": []}
    for path in FILES:
        for node in source_nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip("^$") in forms:
                forms[node.value.strip("^$")].append(path.name)
    assert forms == {"[0-9a-f]{64}": ["digest.py"], "[0-9a-f]{12}": ["run_folder.py"]}
