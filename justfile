# Recipes for contributors. Each is one command; CONTRIBUTING.md shows the commands for machines without just.

# list the recipes
default:
    @just --list

# unit tests of the rooms that take seconds, and the rules of the house: under 30 seconds
fast:
    python -m pytest -n auto tests/unit/core tests/unit/metrics tests/unit/stats tests/unit/test_layers.py

# the default suite: unit and integration tests
test:
    python -m pytest -n auto --dist worksteal

# processes, kills, oracles, long seeds
slow:
    python -m pytest -n auto --dist worksteal -m slow

# the tests that need Chromium on PATH
browser:
    python -m pytest -m browser

# the tests beside torch, transformers, bert-score and sentence-transformers: the extra dev-oracles
oracles:
    python -m pytest -m oracles

# the tests of detectors beside torch, transformers and lettucedetect: the extra dev-detectors
detectors:
    python -m pytest -m detectors

# the tests of runner=ray: the extra ray
ray:
    python -m pytest -m ray

# the tests of the built wheel: they need hatchling
wheel:
    python -m pytest -m wheel

# lint, format, types, and what is made from the code
check:
    python -m ruff check .
    python -m ruff format --check .
    python -m mypy
    python docs/generate.py --check
    python -m pytest -m slow tests/unit/cli/test_json_schemas.py

# write the pages of docs/ that are made from the code, and build the site to site/: the extra dev-docs
docs:
    python docs/generate.py
    python -m mkdocs build --strict

# show the site while you write
docs-serve:
    python -m mkdocs serve

# update all that lists metrics: the lock of prompts, the lists of the rooms, pages of docs/, schemas
metrics:
    python -m tests.support.prompt_lock
    python docs/generate.py
    python -m ragpipe task=schema dir=conf/schema
