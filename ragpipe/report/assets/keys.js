// keys.js: single keys. They are disabled in input fields, and can be switched off (WCAG 2.1.4): the browser remembers that.

class Keys {
  /**
   * `bindings`: [{keys: ["j"], does: "next case", run(event)}]. A dialog that lists them opens with `?` and with `button`.
   * `always` in a binding: it works in fields too, and when keys are switched off (for Escape).
   */
  constructor(bindings, button) {
    this.bindings = bindings;
    this.off = remembered("ragpipe.keys") === "off";
    button.addEventListener("click", () => this.show());
    document.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || this.dialog?.open) return;
    const inField = event.target.closest?.("input, textarea, select, [contenteditable]");
    const quiet = this.off || (inField && inField.type !== "checkbox" && inField.type !== "radio");
    if (event.key === "?" && !quiet) {
      event.preventDefault();
      this.show();
      return;
    }
    const binding = this.bindings.find(({ keys }) => keys.includes(event.key));
    if (!binding || (quiet && !binding.always)) return;
    if (binding.run(event) !== false) event.preventDefault();
  }

  show() {
    this.dialog ??= document.body.appendChild(this.makeDialog());
    this.dialog.showModal();
  }

  makeDialog() {
    const rows = [...this.bindings, { keys: ["?"], does: "this list" }].map(({ keys, does }) =>
      make("tr", {}, make("td", {}, keys.map((key) => make("kbd", { text: key }))), make("td", { text: does })));
    const toggle = make("input", { type: "checkbox", onchange: () => {
      this.off = !toggle.checked;
      remember("ragpipe.keys", this.off ? "off" : null);
    } });
    toggle.checked = !this.off;
    return make("dialog", { class: "keys", "aria-labelledby": "keys-title" },
      make("h2", { id: "keys-title", text: "Keys" }),
      make("table", {}, make("tbody", {}, rows)),
      make("label", {}, toggle, " single keys are on"),
      make("form", { method: "dialog" }, make("button", { text: "Close" })));
  }
}
