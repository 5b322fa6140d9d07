// folds.js: what is folded is no part of the page until it is opened, so that a page with many tables stays light.

/** Take the content of the closed folds in `root` out of the page. A fold gets it back when it is opened, for good. */
function lightenFolds(root) {
  for (const fold of root.querySelectorAll("details.fold:not([open])")) {
    const content = document.createDocumentFragment();
    content.append(...[...fold.childNodes].filter((node) => node.nodeName !== "SUMMARY"));
    fold.addEventListener("toggle", () => fold.append(content), { once: true });
  }
}

/** Links to a section of the page lead there, the focus too; open it when it is one fold; leave the state in the address alone. */
function followSectionLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]:not([href^="#v="])');
    const section = link && byId(link.getAttribute("href").slice(1));
    if (!section || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (section.firstElementChild.matches("details")) section.firstElementChild.open = true;
    section.scrollIntoView();
    const head = section.querySelector("h2, summary");
    if (head.nodeName !== "SUMMARY") head.tabIndex = -1;
    head.focus({ preventScroll: true });
  });
}
