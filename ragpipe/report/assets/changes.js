// changes.js: what is new and gone in a text, as elements.

const COMMON_MIN = 0.3; // of the longer text: with less in common, marked words would be harder to read than the two texts

/** The pieces of `after`, with the words that are new and gone since `before`; null for texts that are too different. */
function changedParts(before, after) {
  const changes = jsdiff.diffWordsWithSpace(before, after, { timeout: 500 });
  if (!changes) return null;
  const words = (text) => text.replace(/\s+/g, "").length;
  const common = changes.reduce((sum, { added, removed, value }) => sum + (added || removed ? 0 : words(value)), 0);
  if (common < COMMON_MIN * Math.max(words(before), words(after))) return null;
  return changes.map(({ added, removed, value }) => (added ? make("ins", { text: value }) : removed ? make("del", { text: value }) : value));
}
