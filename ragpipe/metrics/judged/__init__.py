"""Metrics that ask a judge: each costs calls. One metric per file.

- `abstention`: Does the system decline where a question has no answer?
- `answer_class`: Is the answer right, wrong, or an admission that the system does not know?
- `answer_relevance`: Does the answer answer what was asked? 0 to 1.
- `answer_synthesis`: Two independent grades from one call: true to the contexts, and explains why the content fits the need.
- `chunk_faithfulness`: Does some chunk support the whole answer? A chain over the chunks.
- `chunk_relevancy`: Does the answer respond to the question, in line with some chunk? A chain over the chunks.
- `citation`: Are the answer's citations there, valid, accurate, and enough?
- `context_precision`: How many of the retrieved chunks are useful for the question, and how early they come. One call over all chunks.
- `context_recall`: Share of the reference answer's statements that the retrieved contexts hold.
- `context_relevance`: Do the retrieved contexts give what the question needs? 0 to 1, in one call with a verdict for each chunk.
- `context_sufficiency`: Do the contexts suffice to answer the question? A verdict of its own, whatever the system made of them.
- `context_utilization`: Share of the useful chunks that the answer draws on.
- `contextual_correctness`: Is it the right answer to the question, measured by the contexts? 0 to 5, in one call.
- `correctness`: How relevant and correct the answer is, measured by a reference answer: 1 to 5 in one call.
- `factual_accuracy`: Correctness, completeness and consistency of an answer by a reference, as one weighted sum with a grade.
- `faithfulness`: Share of the answer's claims that the contexts support.
- `format`: Does the answer have the form that was asked for? Rules first; only the tone needs a judge.
- `groundedness`: How far the contexts bear the answer, 0 to 5, in one call; citations count where the case requires them.
- `noise_sensitivity`: How far retrieved chunks lead the answer astray: wrong claims that stand in them.
- `nuggets`: Which of the reference's facts the answer holds, the vital ones apart: the nugget evaluation of TREC RAG.
- `policy_compliance`: Does the answer keep to the rules of the house? A gate: patterns first, the judge for what no pattern caught.
- `recency_conflict`: Two notes disagree: does the answer cite what the label asks for, and say so? From citations and anchor roles.
- `rejection_calibration`: Does the system answer what it should answer, and decline what it should decline?
- `relevance_grade`: How relevant each retrieved passage is to the question, 0 to 3, as TREC assessors grade.
- `rubric`: A metric without code: criteria, scale and anchors in YAML.
- `source_policy`: Does the answer respect how its sources may be used? A gate.
"""
