// A filter above every long table with a verdict: words of the statement, and what it was found to be.
"use strict";

const LONG = 10;
const VERDICTS = {
  "✔": "holds", "◐": "holds in part", "✘": "does not hold", "?": "not decidable", "…": "not run yet",
};

/** The mark that a cell starts with, if it is a verdict. */
const verdict = (cell) => Object.keys(VERDICTS).find((mark) => cell.textContent.trim().startsWith(mark));

function addFilter(table, number) {
  const rows = [...table.tBodies[0].rows];
  const marks = new Set(rows.flatMap((row) => [...row.cells].map(verdict).filter(Boolean)));
  if (rows.length < LONG || !marks.size) return;

  const words = Object.assign(document.createElement("input"), {
    type: "search", placeholder: "Filter by words", id: `filter-words-${number}`,
  });
  words.setAttribute("aria-label", "Show rows with these words");
  const kind = document.createElement("select");
  kind.setAttribute("aria-label", "Show rows with this verdict");
  kind.add(new Option("every verdict", ""));
  for (const [mark, name] of Object.entries(VERDICTS)) if (marks.has(mark)) kind.add(new Option(`${mark} ${name}`, mark));
  const count = document.createElement("span");
  count.setAttribute("role", "status");

  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = wanted.every((word) => text.includes(word))
        && (!kind.value || [...row.cells].some((cell) => verdict(cell) === kind.value));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} statements`;
  };
  words.addEventListener("input", show);
  kind.addEventListener("change", show);

  const bar = document.createElement("div");
  bar.className = "filter";
  bar.append(words, kind, count);
  (table.closest(".md-typeset__scrollwrap") || table).before(bar);
  show();
}

document.querySelectorAll("article table").forEach(addFilter);
