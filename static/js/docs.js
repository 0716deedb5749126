// The documentation reads well without this. With it, samples in several languages become tabs whose choice is remembered,
// the contents list marks the section in view, and "/" moves to the search.
"use strict";

const REMEMBERED = "docs-language";

function remembered() {
  try { return localStorage.getItem(REMEMBERED); } catch { return null; } // a browser may forbid storage
}

function remember(language) {
  try { localStorage.setItem(REMEMBERED, language); } catch { /* the choice holds for this page */ }
}

const groups = [...document.querySelectorAll(".samples")].filter((group) => group.children.length > 1);

function show(language) {
  for (const group of groups) {
    const samples = [...group.querySelectorAll(".sample")];
    if (!samples.some((sample) => sample.dataset.language === language)) continue;
    for (const sample of samples) sample.hidden = sample.dataset.language !== language;
    for (const choice of group.querySelectorAll("input")) choice.checked = choice.value === language;
  }
}

for (const [number, group] of groups.entries()) {
  const samples = [...group.querySelectorAll(".sample")];
  const choices = document.createElement("div");
  choices.className = "switch";
  choices.setAttribute("role", "radiogroup");
  choices.setAttribute("aria-label", "Language");
  for (const sample of samples) {
    const [label, input, text] = ["label", "input", "span"].map((name) => document.createElement(name));
    Object.assign(input, {type: "radio", name: `language-${number}`, value: sample.dataset.language});
    input.addEventListener("change", () => {
      const before = group.getBoundingClientRect().top;
      show(input.value);
      scrollBy({top: group.getBoundingClientRect().top - before, behavior: "instant"}); // groups above changed their height
      remember(input.value);
    });
    text.textContent = sample.dataset.language;
    label.append(input, text);
    choices.append(label);
    sample.querySelector(".language").hidden = true;
  }
  group.prepend(choices);
  show(samples[0].dataset.language);
}
if (remembered()) show(remembered());
// Samples that were hidden moved what is below them.
if (groups.length && location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();

const contents = document.querySelector(".contents nav");
if (contents) {
  const links = new Map();
  for (const link of contents.querySelectorAll("a")) links.set(link.hash.slice(1), link);
  const headings = [...document.querySelectorAll(".document :is(h2, h3)[id]")].filter((heading) => links.has(heading.id));
  const mark = () => {
    const passed = headings.filter((heading) => heading.getBoundingClientRect().top < innerHeight / 4);
    const link = links.get((passed.at(-1) ?? headings[0])?.id);
    if (!link || link.hasAttribute("aria-current")) return;
    for (const other of links.values()) other.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    contents.scrollTop += link.getBoundingClientRect().top - contents.getBoundingClientRect().top - contents.clientHeight / 2;
  };
  for (const moved of ["scroll", "resize"]) addEventListener(moved, mark, {passive: true});
  mark();
  const folded = contents.closest("details");
  contents.addEventListener("click", (event) => { if (event.target.closest("a")) folded.open = false; });
}

const search = document.getElementById("search-docs");
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  event.preventDefault();
  search.focus();
  search.select();
});
