// All labels in a table that is searched and sorted, and the page of one.
import { rowCard } from "./answers.js";
import { count, decimalWords, loader, make, nameOf, notice, percentWords } from "./elements.js";
import { offsetOf, pager } from "./rows.js";
import { MEASURING, ruleQuery, withoutRows } from "./rules.js";
import { ask, modelPath } from "./service.js";

const PAGE = 25;
const EXAMPLES = 3;
const TYPING = 150;
const COLUMNS = [
  ["name", "Label", ""],
  ["support", "Rows", "held out"],
  ["recall", "Recall", "of the sets"],
  ["size", "Set size", "of sets that hold it"],
];

export const labelsView = (root, { store }) => {
  let model = null;
  let asked = "";
  const search = make("input", { type: "search", id: "search", placeholder: "Search", "aria-label": "Search labels", autocomplete: "off" });
  const heads = new Map();
  const body = make("tbody", {});
  const head = make(
    "tr",
    {},
    COLUMNS.map(([key, words, unit]) => {
      const made = make(
        "th",
        { scope: "col" },
        make("button", { type: "button", onclick: () => sortBy(key) }, words),
        unit ? make("small", {}, unit) : null,
      );
      heads.set(key, made);
      return made;
    }),
  );
  const table = make(
    "div",
    { class: "scroll" },
    make("table", { class: "labels-table" }, make("caption", { class: "hidden-words" }, "Labels"), make("thead", {}, head), body),
  );
  const region = make("div", { class: "below", "aria-live": "polite" });
  root.replaceChildren(
    make("h2", {}, "Labels"),
    make("div", { class: "filters" }, search),
    make("div", { class: "scroll-frame" }, table),
    region,
  );

  const sortOf = (state) => ({ sort: heads.has(state.sort) ? state.sort : "support", order: state.order === "asc" ? "asc" : "desc" });
  const sortBy = (key) => {
    const { sort, order } = sortOf(store.state);
    const first = key === "name" ? "asc" : "desc";
    store.set({ sort: key, order: sort === key ? (order === "asc" ? "desc" : "asc") : first, offset: "" }, { step: true });
  };
  let wait = 0;
  search.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(() => store.set({ search: search.value, offset: "" }), TYPING);
  });

  const row = ({ label, support, recall, size }) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, make("a", { href: store.href({ view: "label", label, offset: "" }) }, nameOf(label))),
      make("td", {}, support.toLocaleString("en-US")),
      make("td", {}, percentWords(recall)),
      make("td", {}, decimalWords(size)),
    );
  const load = loader(region, {
    slow: MEASURING,
    draw({ total, labels, offset }) {
      body.replaceChildren(...labels.map(row));
      table.hidden = !total;
      if (!total) return notice("empty", "No label has this in its name.");
      return pager({ offset, limit: PAGE, total, shown: labels.length }, ["label"], (next) =>
        store.set({ offset: next || "" }, { step: true }),
      );
    },
    onState(state) {
      if (state === "error") table.hidden = true;
    },
  });

  return {
    update(state, shownModel) {
      model = shownModel;
      if (document.activeElement !== search) search.value = state.search ?? "";
      const { sort, order } = sortOf(state);
      for (const [key, element] of heads) {
        if (key === sort) element.setAttribute("aria-sort", order === "asc" ? "ascending" : "descending");
        else element.removeAttribute("aria-sort");
      }
      if (!model.held_out) {
        asked = "";
        table.hidden = true;
        load.clear(notice("empty", withoutRows(model)));
        return;
      }
      const offset = offsetOf(state);
      const path = modelPath(model, "labels", { search: state.search, sort, order, ...ruleQuery(state, model), offset, limit: PAGE });
      if (path === asked) return;
      asked = path;
      load(async (signal) => ({ offset, ...(await ask(path, { signal })) }));
    },
  };
};

const fact = (words, value, unit = "") =>
  make("div", {}, make("dt", {}, words), make("dd", {}, value, unit ? make("small", {}, ` ${unit}`) : null));

export const labelView = (root, { store, peers }) => {
  let model = null;
  let asked = "";
  const region = make("div", { class: "about-label", "aria-live": "polite" });
  const examples = make("div", { class: "cards", "aria-live": "polite" });
  root.replaceChildren(make("p", {}, make("a", { class: "back", href: "#labels" }, "‹ All labels")), region, examples);

  const confusion = ({ confused }) => {
    if (!confused.length) return make("p", { class: "about" }, "No other label is in the sets of its rows.");
    const highest = confused[0].share || 1;
    return make(
      "ol",
      { class: "score-bars confused" },
      confused.map(({ label, share }) => {
        const bar = make("span", { class: "bar" }, make("span", {}));
        bar.firstElementChild.style.width = `${(100 * share) / highest}%`;
        return make(
          "li",
          { class: "left-out" },
          make("a", { class: "label", href: store.href({ label }) }, nameOf(label)),
          bar,
          make("span", { class: "score" }, percentWords(share)),
        );
      }),
    );
  };
  const load = loader(region, {
    slow: MEASURING,
    onState(state) {
      if (state === "done") showExamples();
      else loadExamples.clear();
    },
    draw: (about) => [
      make("h2", {}, nameOf(about.label)),
      make(
        "dl",
        { class: "facts" },
        fact("Held-out rows", about.support.toLocaleString("en-US")),
        about.train_support === null ? null : fact("Training rows", about.train_support.toLocaleString("en-US")),
        fact("Recall", percentWords(about.recall), about.support ? `of ${count(about.support, "row")}` : ""),
        fact("Sets that hold it", decimalWords(about.size), "labels on average"),
      ),
      make("h3", {}, "Confused with"),
      make("p", { class: "about" }, "Labels in the sets of its rows that are not true there, by the share of its rows."),
      confusion(about),
      make("h3", {}, "Examples"),
      about.support
        ? make(
            "p",
            {},
            make(
              "a",
              { href: store.href({ view: "rows", show: "label", offset: "" }) },
              `Browse ${about.support === 1 ? "its row" : `all ${count(about.support, "row")}`}`,
            ),
          )
        : notice("empty", "No held-out row has this label."),
      about.examples.length
        ? make(
            "p",
            { class: "note row-links" },
            "Missed rows first: ",
            about.examples.flatMap((row, at) => [
              at ? ", " : "",
              make("a", { href: store.href({ view: "try", input: "row", row, offset: "" }) }, `row ${row}`),
            ]),
          )
        : null,
    ],
  });
  const loadExamples = loader(examples, {
    draw({ rows }) {
      const hrefs = {
        rowHref: (row) => store.href({ view: "try", input: "row", row, offset: "" }),
        auditHref: (row) => store.href({ view: "audit", of: "row", row, offset: "" }),
      };
      return rows.map((row) =>
        rowCard(
          row,
          peers(model).map(({ name }) => name),
          hrefs,
        ),
      );
    },
  });
  const showExamples = () => {
    const { state } = store;
    loadExamples((signal) =>
      ask(modelPath(model, "rows", { show: "label", label: state.label, ...ruleQuery(state, model), limit: EXAMPLES }), { signal }),
    );
  };

  return {
    update(state, shownModel) {
      model = shownModel;
      root.querySelector(".back").href = store.href({ view: "labels", label: "" });
      const nothing = model.held_out ? (state.label ? "" : "Choose a label.") : withoutRows(model);
      if (nothing) {
        asked = "";
        loadExamples.clear();
        load.clear(notice("empty", nothing));
        return;
      }
      const path = modelPath(model, `labels/${encodeURIComponent(state.label)}`, ruleQuery(state, model));
      if (path === asked) return;
      asked = path;
      load((signal) => ask(path, { signal }));
    },
  };
};
