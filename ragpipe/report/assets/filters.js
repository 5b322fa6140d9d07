// filters.js: which rows pass the filters, and what each filter keeps out.

/** The numbers of the rows from 0 to `count` that pass every test. `tests`: {name: (row) => boolean}, the active ones only. */
function matchingRows(count, tests) {
  const active = Object.values(tests);
  const rows = [];
  for (let row = 0; row < count; row++) if (active.every((test) => test(row))) rows.push(row);
  return rows;
}

/** For each active filter how many rows there would be without it: [[name, count]], the largest count first. */
function countsWithout(count, tests) {
  const counts = Object.keys(tests).map((name) => {
    const { [name]: _, ...others } = tests;
    return [name, matchingRows(count, others).length];
  });
  return counts.sort((a, b) => b[1] - a[1]);
}

/** The sentence of a list: "12 of 101"; for an empty one what to leave out: "0 of 101; without verdict 12". */
function countSentence(shown, count, tests) {
  const whole = `${shown.toLocaleString("en")} of ${count.toLocaleString("en")}`;
  if (shown > 0 || !Object.keys(tests).length) return whole;
  return [whole, ...countsWithout(count, tests).filter(([, n]) => n > 0).map(([name, n]) => `without ${name} ${n.toLocaleString("en")}`)].join("; ");
}
