// One row of one's own, or a held-out one, and the sets of all models side by side.
import { answerBars, answerSummary, inputPicture, trueLabels } from "./answers.js";
import { button, choice, choose, loader, make, nameOf, notice } from "./elements.js";
import { INPUT_FIELDS, SOURCE_WORDS, questionOf, sourceOf, sourcesOf } from "./inputs.js";
import { ruleBody } from "./rules.js";
import { ask, modelPath } from "./service.js";

const TOP = 12;
const SEED = 0; // A link shows the same answer again, also where ties are broken at random.

/* A held-out row: its number, the ones around it, and what it holds. `onRow` gets the row that is shown. */
const rowField = (store, model, onRow) => {
  const box = make("input", { type: "number", id: "row", min: 0, step: 1 });
  const picture = make("div", { class: "row-picture", "aria-live": "polite" });
  const rows = model.held_out.rows;
  let offset = 0;
  let asked = "";
  const load = loader(picture, {
    draw(page) {
      const [row] = page.rows;
      offset = page.offset;
      onRow(row);
      return [rowPicture(row), editButton(row)];
    },
    onState(state) {
      if (state === "error") onRow(null);
    },
  });
  const goTo = (place) => {
    // At once, so that two clicks go two rows on.
    offset = (place + rows) % rows;
    return load(async (signal) => {
      const page = await ask(modelPath(model, "rows", { offset, limit: 1 }), { signal });
      if (!signal.aborted && picture.isConnected) {
        asked = String(page.rows[0].row);
        store.set({ row: asked, input: "row" });
        box.value = asked;
      }
      return page;
    });
  };
  const editButton = ({ input: { kind, text, values, cut } }) => {
    const copy = { text: { text }, features: { features: values?.join(", ") } }[kind];
    return copy && !cut
      ? button({ class: "button edit", onclick: () => store.set({ ...copy, input: kind }, { step: true }) }, "Edit a copy")
      : "";
  };
  box.addEventListener("change", () => {
    if (box.value !== "" && box.reportValidity()) store.set({ row: box.value, input: "row" }, { step: true });
  });
  const jump = (words, label, place) => button({ "aria-label": label, onclick: () => goTo(place()) }, words);
  return {
    element: make(
      "div",
      {},
      make(
        "div",
        { class: "row-controls" },
        make("label", { class: "field", for: "row" }, "Row"),
        box,
        jump("‹", "Previous row", () => offset - 1),
        jump("›", "Next row", () => offset + 1),
        jump("Random", "Random row", () => Math.floor(Math.random() * rows)),
      ),
      picture,
    ),
    follow({ row }) {
      if (row === undefined) {
        goTo(0);
        return;
      }
      if (document.activeElement !== box) box.value = row;
      if (asked === row) return;
      asked = row;
      load((signal) => ask(modelPath(model, "rows", { row }), { signal }));
    },
  };
};

const rowPicture = ({ input }) => {
  const picture = inputPicture(input);
  // A long text scrolls here, so that it must be within reach of the keyboard.
  if (input.kind === "text") picture.setAttribute("tabindex", 0);
  return picture;
};

/* The answer of one model. `truth` says which labels are true, or null. */
const answerColumn = (peer, store, truth) => {
  const about = make("p", { class: "sides" });
  const own = make("p", { class: "note" });
  const body = make("div", { class: "column-body", "aria-live": "polite" });
  const engine = peer.engine === "onnx" ? make("span", { class: "engine" }, "ONNX") : null;
  let last = null;
  let asked = "";
  const draw = (answer) => {
    last = answer;
    const [row] = answer.rows;
    about.textContent = answerSummary(row.labels, truth());
    // A rule that is chosen stands in the bar; models' own rules may differ.
    own.textContent = store.state.kind ? "" : answer.rule.text;
    return answerBars(row, truth());
  };
  const forget = () => {
    last = null;
    about.textContent = own.textContent = "";
  };
  const load = loader(body, {
    draw,
    onState(state) {
      if (state === "error") forget();
    },
  });
  return {
    element: make("section", { class: "column" }, make("h3", {}, nameOf(peer.name), engine), about, own, body),
    ask(question, rule, saved) {
      const words = question && JSON.stringify([question, rule, saved]);
      if (words === asked) return;
      asked = words;
      if (!question) {
        forget();
        load.clear();
        return;
      }
      load(
        async (signal) =>
          (await ask("/predict", { body: { model: peer.name, ...question, rule, top: TOP, seed: SEED }, signal })).answers[0],
      );
    },
    redraw: () => {
      if (last) body.replaceChildren(draw(last));
    },
  };
};

export const tryView = (root, { store, peers, takers }) => {
  let model = null;
  let field = null;
  let columns = new Map();
  let truth = null;
  const sources = make("div", { class: "sources" });
  const fieldPlace = make("div", { class: "input-field" });
  const truthPlace = make("div", { class: "truth-place" });
  const emptyPlace = make("div", {});
  const columnsPlace = make("div", { class: "columns" });
  const parts = [
    make("h2", { class: "hidden-words" }, "Try a row"),
    make(
      "div",
      { class: "try" },
      make("section", { class: "input", "aria-label": "Input" }, sources, fieldPlace),
      make("section", { class: "results", "aria-label": "Answers" }, truthPlace, emptyPlace, columnsPlace),
    ),
  ];

  const setTruth = (row) => {
    truth = row?.true ?? null;
    const audit = row && make("a", { href: store.href({ view: "audit", of: "row", row: row.row }) }, "Can the layer answer this set?");
    truthPlace.replaceChildren(...(row ? [trueLabels(row.true), make("p", { class: "note" }, audit)] : []));
    for (const column of columns.values()) column.redraw();
  };
  const drawField = (state, source) => {
    const entries = sourcesOf(model).map((each) => [each, SOURCE_WORDS[each]]);
    // Made anew only if they differ, so that the focus and what is being typed stay.
    if (sources.dataset.entries !== String(entries)) {
      const toSource = (value) => store.set({ input: value }, { step: true });
      sources.replaceChildren(choice("Input", "source", entries, source, toSource));
      sources.dataset.entries = String(entries);
    }
    const shown = `${model.name} ${source}`;
    if (fieldPlace.dataset.shown !== shown) {
      fieldPlace.dataset.shown = shown;
      setTruth(null);
      field = source === "row" ? rowField(store, model, setTruth) : INPUT_FIELDS[source](store, model);
      fieldPlace.replaceChildren(field.element);
    }
    choose(sources, source);
    field.follow(state);
  };
  const drawColumns = (state, source) => {
    const shown = source === "row" ? peers(model) : takers(model);
    if (String([...columns.keys()]) !== String(shown.map(({ name }) => name))) {
      columns = new Map(shown.map((peer) => [peer.name, answerColumn(peer, store, () => truth)]));
      columnsPlace.replaceChildren(...[...columns.values()].map(({ element }) => element));
    }
    const { body, empty } = questionOf(state, model);
    emptyPlace.replaceChildren(...(empty ? [notice("empty", empty)] : []));
    columnsPlace.hidden = !body;
    for (const peer of shown) columns.get(peer.name).ask(body, ruleBody(state, peer), peer.rule);
  };

  return {
    update(state, shownModel) {
      model = shownModel;
      const source = sourceOf(state, model);
      if (!source) {
        root.replaceChildren(notice("empty", "This model takes rows that this page has no field for."));
        return;
      }
      if (!columnsPlace.isConnected) root.replaceChildren(...parts);
      drawField(state, source);
      drawColumns(state, source);
    },
  };
};
