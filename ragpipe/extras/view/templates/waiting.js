// waiting.js: a comparison is being made: ask each half second, and show it when it is there.

const begun = Date.now();

async function ask() {
  byId("waited").textContent = `${Math.round((Date.now() - begun) / 1000)} s so far.`;
  try {
    const reply = await fetch("state", { cache: "no-store" });
    if (!reply.ok) throw new Error(String(reply.status));
    if ((await reply.json()).ended) {
      location.reload();
      return;
    }
  } catch {
    byId("waited").textContent = "No connection to the server. It is asked again.";
  }
  setTimeout(ask, 500);
}

ask();
