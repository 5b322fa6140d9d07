// dom.js: elements, and what the browser remembers. Text goes in as text: nothing here or elsewhere writes markup.

const byId = (id) => document.getElementById(id);

/** An element. `properties`: `class`, `text`, `on<event>` (a function), any other is an attribute; null and false leave it out. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A text that the browser kept under this name, or null. Storage may be refused: then nothing is kept. */
function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a text under this name (null forgets it). Returns whether the browser kept it: storage may be refused or full. */
function remember(name, text) {
  try {
    if (text === null) localStorage.removeItem(name);
    else localStorage.setItem(name, text);
    return true;
  } catch {
    return false;
  }
}
