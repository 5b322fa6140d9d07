"""Questions to the embedded judge."""

from tests.support.embedded_judge import ask, prompt_with

__all__ = ["ask", "prompt_with"]
