"""Which models answered: a judge that was pinned is only as good as the replies that are really its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragpipe.store.run.run_tables import batches

_SHOWN = 20
_COLUMNS = ("status", "attempts", "flags", "model", "fingerprint")
_BATCH = 16_384


def served(judge_inputs: Path, first: NDArray[np.bool_]) -> dict[str, Any]:
    """Replies of a provider by who gave them: `requested` the model that was asked (or a declared name of it), `dated` a dated
    version of it, `other` by name, `unknown` where the reply named none; `prompts_cut` where there are any; and `fingerprints` with their counts, the 20 most
    frequent. `first` are the rows that use a reply for the first time."""
    counts, others, fingerprints = Counter[str](), Counter[str](), Counter[str]()
    read = 0
    for batch in batches(judge_inputs, _COLUMNS, size=_BATCH):
        mask = first[read : read + len(batch)]
        read += len(batch)
        for row in batch.filter(mask).to_pylist():
            if row["status"] != "ok" or not row["attempts"]:
                continue
            flags = row["flags"] or ()
            counts["cut"] += "prompt_cut" in flags
            if "other_model" in flags:
                others[row["model"]] += 1
            else:
                counts["unknown" if not row["model"] else "dated" if "dated_model" in flags else "requested"] += 1
            if row["fingerprint"]:
                fingerprints[row["fingerprint"]] += 1
    return {
        "requested": counts["requested"],
        "dated": counts["dated"],
        "other": dict(others.most_common(_SHOWN)),
        "unknown": counts["unknown"],
        "fingerprints": dict(fingerprints.most_common(_SHOWN)),
        **({"prompts_cut": counts["cut"]} if counts["cut"] else {}),
    }


def served_line(counts: Mapping[str, Any]) -> str | None:
    """What to say where replies are another model's, or name none; None where there is nothing to say."""
    n_other, n_unknown = sum(counts["other"].values()), counts["unknown"]
    total = n_other + n_unknown + counts["requested"] + counts["dated"]
    parts = [f"{n_other:,} of {total:,} replies are of another model ({', '.join(counts['other'])})"] if n_other else []
    if n_unknown:
        parts.append(f"{n_unknown:,} of {total:,} replies name no model")
    if n_cut := counts.get("prompts_cut", 0):
        parts.append(
            f"{n_cut:,} of {total:,} prompts were cut by the server, which counted far fewer tokens than were sent"
        )
    return "; ".join(parts) or None


def signed(signature: str, counts: Mapping[str, Any]) -> str:
    """The signature with a part that says so, before the iteration's."""
    line = served_line(counts)
    head, mark, iteration = signature.rpartition(" | iteration ")
    return signature if line is None else f"{head} | {line.replace('|', '/')}{mark}{iteration}"
