"use strict";
// The table of single labels: sorted, searched and filled for one candidate at one K. `labelTable` is used by page.js.
const FIRST_ROWS = 12;

const labelTable = (section, labels, lists, { kIndex, onExamples, countExamples }) => {
  const body = section.querySelector("tbody");
  const more = section.querySelector(".more-rows");
  const candidate = section.querySelector("[data-candidate]");
  const search = section.querySelector("[data-search]");
  const state = { sort: "evaluated", up: false, shown: FIRST_ROWS, kIndex };
  const names = labels.names.concat(labels.others);

  const values = (key) => {
    const chosen = labels.candidates[Number(candidate.value)];
    if (key === "recall" || key === "size") return lists[chosen[key][state.kIndex]];
    if (key === "examples") return labels.names.map(countExamples);
    return key === "name" ? labels.names : labels[key];
  };
  const cell = (words, className = "") => Object.assign(document.createElement("td"), { textContent: words, className });
  const row = (at, columns) => {
    const made = document.createElement("tr");
    const head = Object.assign(document.createElement("th"), { scope: "row" });
    head.append(Object.assign(document.createElement("bdi"), { textContent: labels.names[at] }));
    const chosen = labels.candidates[Number(candidate.value)];
    const confused = cell("", "left");
    chosen.confused[at].forEach(([share, other], place) => {
      confused.append(place ? ", " : "", Object.assign(document.createElement("bdi"), { textContent: names[other] }), ` ${share}%`);
    });
    const examples = cell("");
    const count = countExamples(labels.names[at]);
    if (count) {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "link", textContent: String(count) });
      button.setAttribute("aria-label", `show ${count} examples of ${labels.names[at]}`);
      button.addEventListener("click", () => onExamples(labels.names[at]));
      examples.append(button);
    }
    made.append(
      head, cell(labels.training[at].toLocaleString("en-US")), cell(labels.evaluated[at].toLocaleString("en-US")),
      cell(String(Math.round(100 * columns.recall[at]))), cell(columns.size[at].toFixed(1)), confused, examples,
    );
    return made;
  };
  const fill = () => {
    const key = values(state.sort);
    const wanted = search.value.trim().toLowerCase();
    const found = labels.names.map((_, at) => at).filter((at) => labels.names[at].toLowerCase().includes(wanted));
    const order = state.sort === "name" ? (a, b) => key[a].localeCompare(key[b]) : (a, b) => key[a] - key[b];
    found.sort((a, b) => (state.up ? order(a, b) : order(b, a)) || a - b);
    const columns = { recall: values("recall"), size: values("size") };
    body.replaceChildren(...found.slice(0, state.shown).map((at) => row(at, columns)));
    section.querySelector(".labels-count").textContent = `${Math.min(state.shown, found.length)} of ${found.length.toLocaleString("en-US")} labels`;
    more.hidden = found.length <= state.shown;
  };
  for (const button of section.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      state.up = state.sort === button.dataset.sort ? !state.up : true;
      state.sort = button.dataset.sort;
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", state.up ? "ascending" : "descending");
      fill();
    });
  }
  candidate.addEventListener("change", fill);
  search.addEventListener("input", fill);
  more.addEventListener("click", () => { state.shown *= 5; fill(); });
  return { setK(index) { state.kIndex = index; fill(); } };
};
