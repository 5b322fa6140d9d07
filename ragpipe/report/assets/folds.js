// folds.js: what of the page is in sight: folds, sections, one method or all, the maps of one score.
// What is folded is no part of the page until it is opened, so that a page with many tables stays light.

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

/** The choice of a method and the method of the address are one. What belongs to other methods (data-of) is out of sight, also in folds that
 * are opened later; of differences (data-only) the one of this method is shown. */
function followMethods(address) {
  const choice = byId("methods");
  if (!choice || !address) return;
  const [inputs, sheet, changed] = [[...choice.querySelectorAll("input")], new CSSStyleSheet(), address.onChange];
  const show = (name) => {
    const number = inputs.findIndex((input) => input.value === name) - 1;
    inputs[Math.max(0, number + 1)].checked = true;
    const others = `[data-of]:not([data-of="${number}"]) { display: none !important; }`;
    const one = `.against:has([data-only="${number}"]) [data-only] { display: none; } .against [data-only="${number}"] { display: inline !important; }`;
    sheet.replaceSync(number < 0 ? "" : `${others} ${one}`);
  };
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  choice.disabled = false;
  choice.addEventListener("change", () => address.set({ method: inputs.find((input) => input.checked).value }));
  address.onChange = (state, how) => {
    show(state.method); // before the list scrolls to its place
    changed(state, how);
  };
  show(address.state.method);
}

/** The maps of the chosen score stand in the place of the first one's. */
function chooseMaps() {
  const [choice, maps] = [byId("map-score"), byId("maps")];
  if (!choice || choice.options.length < 2) return;
  const first = [...maps.childNodes];
  byId("map-choice").hidden = false;
  choice.addEventListener("change", () => {
    const other = byId(`maps-${choice.value}`);
    maps.replaceChildren(...(other ? other.content.cloneNode(true).childNodes : first));
  });
}
