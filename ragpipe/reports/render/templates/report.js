// report.html: filters and sorts the cases that stand on the page. It writes no markup and asks no server.
"use strict";
(() => {
  const form = document.getElementById("filter");
  const list = document.getElementById("case-list");
  if (!form || !list) return;
  const all = [...list.querySelectorAll(":scope > .case")].map((element) => ({
    element,
    row: Number(element.dataset.row),
    method: element.dataset.method,
    modes: JSON.parse(element.dataset.modes),
    scores: new Map(JSON.parse(element.dataset.scores)),
    text: null,
  }));
  const order = new Map(all.map((one, place) => [one, place]));
  const value = (name) => form.elements[name].value;
  const number = (name) => (value(name) === "" ? null : Number(value(name)));
  const found = (one) => one.scores.get(value("score")) || { score: null, verdict: "none" };

  function matches(one) {
    const { score, verdict } = found(one);
    const least = number("least"), most = number("most"), words = value("find").toLowerCase();
    if (value("method") && one.method !== value("method")) return false;
    if (value("verdict") && verdict !== value("verdict")) return false;
    if (value("mode") && !one.modes.includes(value("mode"))) return false;
    if (least !== null && !(score !== null && score >= least)) return false;
    if (most !== null && !(score !== null && score <= most)) return false;
    if (!words) return true;
    if (one.text === null) one.text = one.element.textContent.toLowerCase();
    return one.text.includes(words);
  }

  function compare(a, b) {
    const by = value("sort");
    if (by === "data") return a.row - b.row;
    if (by === "shown") return order.get(a) - order.get(b);
    const one = found(a).score, other = found(b).score;
    if (one === null || other === null) return (one === null) - (other === null) || order.get(a) - order.get(b);
    return (by === "rising" ? one - other : other - one) || order.get(a) - order.get(b);
  }

  function update() {
    let shown = 0;
    for (const one of all) {
      one.element.hidden = !matches(one);
      shown += one.element.hidden ? 0 : 1;
    }
    list.append(...[...all].sort(compare).map((one) => one.element));
    form.elements.count.value = `${shown} of ${all.length} cases`;
  }

  function openNamed() {
    const named = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!named || named.tagName !== "DETAILS") return;
    if (named.hidden) {
      form.reset();
      update();
    }
    named.open = true;
    named.scrollIntoView();
  }

  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", openNamed);
  form.hidden = false;
  update();
  openNamed();
})();
