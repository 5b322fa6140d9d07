"""Metrics that ask a judge: each costs calls. One metric per file.

- `abstention`: Does the system decline where a question has no answer?
- `answer_class`: Is the answer right, wrong, or an admission that the system does not know?
- `answer_relevance`: Does the answer answer what was asked? 0 to 1.
- `answer_synthesis`: Two independent grades in one call: is the answer true to the contexts, and does it explain why they fit the need?
- `chunk_faithfulness`: Does at least one chunk support the answer in a main fact, and contradict none? A chain of questions over the chunks.
- `chunk_relevancy`: Does the answer respond to the question, in line with at least one chunk? A chain of questions over the chunks.
- `citation`: Are the answer's citations present, valid, accurate and sufficient?
- `context_precision`: How many of the retrieved chunks are useful for the question, and how early do they come? One call over all chunks.
- `context_recall`: The share of the reference answer's statements that the retrieved contexts contain.
- `context_relevance`: Do the retrieved contexts give what the question needs? 0 to 1, in one call with a verdict for each chunk.
- `context_sufficiency`: Are the contexts sufficient to answer the question? A verdict of its own, whatever the system made of them.
- `context_utilization`: The share of the useful chunks that the answer draws on.
- `contextual_correctness`: Is it the right answer to the question, judged by the contexts? 0 to 5, in one call.
- `correctness`: How relevant and correct the answer is, compared with a reference answer: 1 to 5 in one call.
- `factual_accuracy`: Correctness, completeness and consistency compared with a reference, as one weighted mean with a letter grade.
- `faithfulness`: The share of the answer's claims that the contexts support.
- `format`: Does the answer have the form that was asked for? Rules first; only the tone needs a judge.
- `groundedness`: How far the contexts support the answer, 0 to 5, in one call; citations count where the case requires them.
- `noise_sensitivity`: How far retrieved chunks mislead the answer: wrong claims that are in them.
- `nuggets`: Which of the reference's facts the answer holds, the vital ones apart: the nugget evaluation of TREC RAG.
- `policy_compliance`: Does the answer keep to the rules of the house? A gate: patterns first, the judge for what no pattern caught.
- `recency_conflict`: Two notes disagree: does the answer cite what the label asks for, and say so? By citations and roles of anchors.
- `rejection_calibration`: Does the system answer what it should answer, and decline what it should decline?
- `relevance_grade`: How relevant each retrieved passage is to the question, 0 to 3, as TREC assessors grade.
- `rubric`: A metric without code: criteria, scale and anchors in YAML.
- `source_policy`: Does the answer respect how its sources may be used? A gate.
"""
