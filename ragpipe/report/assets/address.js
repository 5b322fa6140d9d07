// address.js: the state of a page is the fragment of its address: #v=1&q=refund&case=dao-01/rerank/1 (pages/page_address.py).

const encodePart = (text) => encodeURIComponent(text.toWellFormed ? text.toWellFormed() : text).replace(/%2F/g, "/").replace(/%3A/g, ":");

function decodePart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The parts of a fragment as an object of texts; what is no key=value is left out, and so is `v`. */
function readAddress(fragment) {
  const pairs = fragment.replace(/^#/, "").split("&").filter((part) => part.includes("="));
  const parts = pairs.map((part) => [decodePart(part.slice(0, part.indexOf("="))), decodePart(part.slice(part.indexOf("=") + 1))]);
  return Object.fromEntries(parts.filter(([key]) => key !== "v"));
}

/** The fragment of a state; parts that are empty or equal to their default are left out. */
function writeAddress(state, defaults = {}) {
  const parts = Object.entries(state).filter(([key, value]) => value && value !== (defaults[key] ?? ""));
  return ["#v=1", ...parts.map(([key, value]) => `${encodePart(key)}=${encodePart(value)}`)].join("&");
}

class Address {
  /** `defaults` names every part of the state. `onChange(state)` is called after each change, Back and Forward included. */
  constructor(defaults, onChange) {
    this.defaults = defaults;
    this.onChange = onChange;
    this.timer = null;
    this.state = this.read();
    window.addEventListener("popstate", () => {
      this.forget();
      this.state = this.read();
      this.onChange(this.state);
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.('a[href^="#v="]');
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.go(link.getAttribute("href"));
    });
  }

  read() {
    const parts = readAddress(location.hash);
    return Object.fromEntries(Object.entries(this.defaults).map(([key, value]) => [key, parts[key] ?? value]));
  }

  fragment() {
    return writeAddress(this.state, this.defaults);
  }

  /** Change parts of the state. `push`: Back returns to the state before; else the address follows 150 ms later. */
  set(changes, { push = false } = {}) {
    if (push) this.settle();
    this.state = { ...this.state, ...changes };
    this.forget();
    if (push) history.pushState(null, "", this.fragment());
    else this.timer = setTimeout(() => this.settle(), 150);
    this.onChange(this.state);
  }

  /** What is to follow later is in the address now: Back returns to it. */
  settle() {
    if (this.timer === null) return;
    this.forget();
    history.replaceState(null, "", this.fragment());
  }

  forget() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  /** Follow a link into the page. */
  go(fragment) {
    this.settle();
    history.pushState(null, "", fragment);
    this.state = this.read();
    this.onChange(this.state, { followed: true });
  }
}
