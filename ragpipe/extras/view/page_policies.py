"""What a file of a run may do in the browser: the folder may come from anybody, and its page would share our origin.

A page whose script is one of ragpipe's own runs it, and nothing else: the header names the script by its hash, so a page that only
says it is ours runs nothing. Any other page runs in a sandbox with an origin of its own, from which nothing of the server can be read.
"""

from __future__ import annotations

import re
from functools import cache

from ragpipe.pages.page_file import content_hash
from ragpipe.reports.compare.compare_page import compare_script
from ragpipe.reports.run_page.run_page import report_script

HEAD = 4096
"""Bytes of a page in which its own policy stands."""
_SCRIPT = re.compile(rb"script-src '(sha256-[A-Za-z0-9+/]{43}=)'( 'self')?;")
_SIDE_FILE = re.compile(rb'(?:ragpipeBlock\("[a-z]+\d*","[A-Za-z0-9+/=]*"\);\n)+')
_REST = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_SANDBOX = "sandbox allow-scripts allow-downloads allow-modals; script-src 'unsafe-inline'"


def page_policy(head: bytes) -> str:
    """The Content-Security-Policy of a page of a run, from its first bytes."""
    match = _SCRIPT.search(head)
    if match is None or match[1].decode() not in own_scripts():
        return f"{_REST}; {_SANDBOX}"
    return f"{_REST}; script-src '{match[1].decode()}'{(match[2] or b'').decode()}"


def is_side_file(content: bytes) -> bool:
    """Whether a script beside a page holds data blocks (`pages.side_files`) and nothing else."""
    return _SIDE_FILE.fullmatch(content) is not None


@cache
def own_scripts() -> frozenset[str]:
    """The hashes of the scripts of ragpipe's pages, as this version writes them."""
    return frozenset(map(content_hash, (compare_script(), report_script())))
