"use strict";
// Colours Python without touching its text: every piece is put back as a text node.
const PYTHON = new RegExp([
  /(?<c>#[^\n]*)/,
  /(?<s>[rbfuRBFU]{0,2}(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))/,
  /(?<f>@[\w.]+|(?<=\b(?:def|class)\s)\w+)/,
  /(?<d>\b(?:0[xX][\da-fA-F]+|\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?)\b)/,
  /(?<k>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield)\b)/,
].map((part) => part.source).join("|"), "g");

function colour(code) {
  const text = code.textContent;
  const made = document.createDocumentFragment();
  let done = 0;
  for (const match of text.matchAll(PYTHON)) {
    made.append(text.slice(done, match.index));
    const span = document.createElement("span");
    span.className = Object.keys(match.groups).find((kind) => match.groups[kind] !== undefined);
    span.textContent = match[0];
    made.append(span);
    done = match.index + match[0].length;
  }
  made.append(text.slice(done));
  code.replaceChildren(made);
  code.dataset.done = "";
}

document.addEventListener("toggle", (event) => {
  if (event.target.open) event.target.querySelectorAll("code.python:not([data-done])").forEach(colour);
}, true);

const form = document.querySelector("form");
if (form) {
  const rows = [...document.querySelectorAll(".examples > details")];
  const told = document.getElementById("shown");
  const texts = new Map();
  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const fits = (row, wanted) => [...wanted].every(([name, value]) => {
    if (!value) return true;
    if (name === "text") return value.toLowerCase().split(/\s+/).every((word) => textOf(row).includes(word));
    return (row.dataset[name] || "").split("\n").includes(value);
  });
  const filter = () => {
    const wanted = new FormData(form);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !fits(row, wanted.entries());
      shown += row.hidden ? 0 : 1;
    }
    told.textContent = `${shown} of ${rows.length} rows shown`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  filter();
}

const openTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.hidden = false;
    target.open = true;
    target.scrollIntoView();
  }
};
addEventListener("hashchange", openTarget);
openTarget();
