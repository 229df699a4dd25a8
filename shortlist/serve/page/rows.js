// Held-out rows: filters, pages, and the sets of all models.
import { rowCard } from "./answers.js";
import { button, choice, choose, count, loader, make, nameOf, notice } from "./elements.js";
import { labelEntry } from "./label_entry.js";
import { MEASURING, ruleQuery, withoutRows } from "./rules.js";
import { ask, modelPath } from "./service.js";

const PAGE = 10;
const FILTERS = {
  all: "All",
  missed: "Missed",
  disagree: "Models disagree",
  empty: "Empty",
  huge: "Huge",
  rare: "Rare labels",
  label: "A label",
};
const ABOUT = {
  all: "Every held-out row.",
  missed: "The set of this model lacks a true label.",
  disagree: "The models answer with different sets.",
  empty: "The set of this model has no label.",
  huge: "The set is more than twice as large as the average one; the largest first.",
  rare: "A true label is among the rarest quarter.",
  label: "Rows that truly have the label.",
};

export const offsetOf = (state) => Math.max(0, Number.parseInt(state.offset, 10) || 0);

/* Buttons to the pages before and after, for lists that the service pages. */
export const pager = ({ offset, limit, total, shown }, words, go, place = "Pages") => {
  if (!total) return make("p", { class: "pager" });
  return make(
    "nav",
    { class: "pager", "aria-label": place },
    button({ disabled: offset === 0, onclick: () => go(Math.max(0, offset - limit)) }, "Previous"),
    make("span", {}, `${(offset + 1).toLocaleString("en-US")}–${(offset + shown).toLocaleString("en-US")} of ${count(total, ...words)}`),
    button({ disabled: offset + shown >= total, onclick: () => go(offset + limit) }, "Next"),
  );
};

export const rowsView = (root, { store, peers }) => {
  let model = null;
  let asked = "";
  const filters = make("div", { class: "filters" });
  const entryPlace = make("div", { class: "filter-label" });
  const about = make("p", { class: "about" });
  const region = make("div", { class: "cards", "aria-live": "polite" });
  root.replaceChildren(make("h2", {}, "Held-out rows"), filters, entryPlace, about, region);

  const go = (offset) => {
    store.set({ offset: offset || "" }, { step: true });
    root.scrollIntoView();
  };
  const load = loader(region, {
    slow: MEASURING,
    draw({ total, rows, offset }) {
      if (!total) return notice("empty", "No row fits.");
      if (!rows.length) return notice("empty", "There are fewer rows.", button({ onclick: () => go(0) }, "To the first page"));
      const names = peers(model).map(({ name }) => name);
      const hrefs = {
        rowHref: (row) => store.href({ view: "try", input: "row", row, offset: "" }),
        auditHref: (row) => store.href({ view: "audit", of: "row", row, offset: "" }),
      };
      const paging = (place) => pager({ offset, limit: PAGE, total, shown: rows.length }, ["row"], go, place);
      return [paging("Pages"), ...rows.map((row) => rowCard(row, names, hrefs)), paging("Pages, again")];
    },
  });

  const drawEntry = (state) => {
    const shown = state.show === "label" ? `${model.name} ${state.label ?? ""}` : "";
    if (entryPlace.dataset.shown === shown) return;
    entryPlace.dataset.shown = shown;
    if (!shown) {
      entryPlace.replaceChildren();
      return;
    }
    const entry = labelEntry(model, {
      legend: "Label",
      placeholder: "Type a part of its name",
      onPick: (label) => store.set({ label, offset: "" }, { step: true }),
    });
    entryPlace.replaceChildren(
      entry.element,
      state.label
        ? make(
            "p",
            { class: "chosen-label" },
            make("span", { class: "chip" }, nameOf(state.label)),
            " ",
            make("a", { href: store.href({ view: "label", offset: "" }) }, "About this label"),
          )
        : "",
    );
  };

  return {
    update(state, shownModel) {
      if (filters.dataset.model !== `${shownModel.name} ${shownModel.held_out_state}`) {
        filters.dataset.model = `${shownModel.name} ${shownModel.held_out_state}`;
        const alone = peers(shownModel).length < 2;
        const entries = Object.entries(FILTERS).filter(([value]) => value !== "disagree" || !alone);
        filters.replaceChildren(
          choice("Show", "show", entries, state.show ?? "all", (value) =>
            store.set({ show: value === "all" ? "" : value, offset: "" }, { step: true }),
          ),
        );
        asked = "";
      }
      model = shownModel;
      const show = state.show in FILTERS ? state.show : "all";
      choose(filters, show);
      drawEntry(state);
      about.textContent = ABOUT[show];
      if (!model.held_out) {
        asked = "";
        load.clear(notice("empty", withoutRows(model)));
        return;
      }
      if (show === "label" && !state.label) {
        asked = "";
        load.clear(notice("empty", "Choose a label."));
        return;
      }
      const offset = offsetOf(state);
      const path = modelPath(model, "rows", {
        show,
        label: show === "label" ? state.label : "",
        ...ruleQuery(state, model),
        offset,
        limit: PAGE,
      });
      if (path === asked) return;
      asked = path;
      load(async (signal) => ({ offset, ...(await ask(path, { signal })) }));
    },
  };
};
