/* What the theme leaves out for people who use a keyboard or a screen reader: a name for the search, and wide tables that can be scrolled by key. */
"use strict";
function complete() {
  document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `Table ${document.querySelectorAll(".md-typeset__scrollwrap[tabindex]").length + 1}`);
    box.tabIndex = 0;
  }
  for (const part of document.querySelectorAll(".md-nav--secondary .md-nav:not([data-named])")) {
    part.dataset.named = "";
    part.setAttribute("aria-label", `On this page: ${part.getAttribute("aria-label")}`);
  }
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((nav, n) => nav.setAttribute("aria-label", `Code block ${n + 1}`));
  for (const button of document.querySelectorAll(".md-code__button[title]:not([aria-label])")) button.setAttribute("aria-label", button.title);
}
new MutationObserver(complete).observe(document.documentElement, { childList: true, subtree: true });
complete();
