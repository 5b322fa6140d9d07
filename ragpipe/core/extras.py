"""The optional packages of an installation, and how they are installed."""

from __future__ import annotations

EXTRAS = {
    "bertscore": ("torch>=2.2", "transformers>=4.44"),
    "detector": ("safetensors>=0.4", "torch>=2.5", "transformers>=4.48.3"),
    "local": ("sentence-transformers>=3.0",),
}
"""By extra that a setting can need the packages that it brings, as pyproject.toml has them."""


def install_command(extra: str) -> str:
    """The command that installs what an extra brings. It names the packages themselves: on a public index the name of this package
    may be another project's."""
    return " ".join(["pip install", *(f"'{package}'" for package in EXTRAS[extra])])
