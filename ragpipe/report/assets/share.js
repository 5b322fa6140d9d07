// share.js: a link to what is open, and files that the page saves. Nothing is sent anywhere.

/** Copy the address of the page. Resolves to a sentence for the reader. */
async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    return "Link copied. The page holds questions, contexts and replies: whoever has the file sees them.";
  } catch {
    return `The browser did not let the page copy. The link: ${location.href}`;
  }
}

/** Save a text as a file, by the browser's own download. */
function saveFile(name, text, type = "text/plain") {
  const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

/** Rows of cells as CSV (RFC 4180). A text that a spreadsheet would take for a formula gets a leading apostrophe. */
function csvText(rows) {
  const cell = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
