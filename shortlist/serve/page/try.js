// One row of one's own, or a held-out one, and the sets of all models side by side.
import { answerBars, answerSummary, inputPicture, trueLabels } from "./answers.js";
import { fitsLink } from "./address.js";
import { button, choice, choose, count, loader, make, nameOf, notice } from "./elements.js";
import { ruleBody } from "./rules.js";
import { ask, modelPath } from "./service.js";

const TOP = 12;
const SEED = 0;  // A link shows the same answer again, also where ties are broken at random.
const TYPING = 300;
const WORDS = { text: "Text", features: "Features", image: "Image", row: "Held-out row" };
const FILE = "shortlist image";

const sourcesOf = (model) => {
  const own = { text: "text", images: "image", features: "features", "sparse features": "features" }[model.kind];
  return [own, model.held_out ? "row" : null].filter(Boolean);
};
const sourceOf = (state, model) => {
  const sources = sourcesOf(model);
  return sources.includes(state.input) ? state.input : sources.includes("row") && !state[sources[0]] ? "row" : sources[0];
};

/* Numbers, and words where the model's columns have them, of one pasted line. */
export const readFeatures = (text, model) => {
  const cells = /[,;\t]/.test(text) ? text.split(/[,;\t]/).map((cell) => cell.trim()) : text.trim().split(/\s+/);
  const values = cells.map((cell) => (cell !== "" && Number.isFinite(Number(cell)) ? Number(cell) : cell));
  const expected = model.columns?.length ?? model.shape[0];
  if (expected && values.length !== expected) return { wrong: `This model takes ${count(expected, "number")}; this row has ${values.length}.` };
  const odd = values.findIndex((value) => typeof value === "string");
  if (odd >= 0) return { wrong: `Each cell must be a number; cell ${odd + 1} is “${values[odd].slice(0, 40)}”.` };
  return { values };
};

/* An image as base64; kept in the address if it is short, else for a reload of this tab. */
const readImage = (file) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});
const keepImage = (content) => {
  if (fitsLink(content)) return { image: content };
  try { sessionStorage.setItem(FILE, content); } catch { sessionStorage.removeItem(FILE); }
  return { image: "file" };
};
const keptImage = (state) => (state.image === "file" ? sessionStorage.getItem(FILE) : state.image);

export const tryView = (root, { store, peers, takers }) => {
  let model = null;
  let columns = new Map();
  let truth = null;
  let asked = "";
  const sources = make("div", { class: "sources" });
  const field = make("div", { class: "input-field" });
  const columnsPlace = make("div", { class: "columns" });
  const emptyPlace = make("div", {});
  const truthPlace = make("div", { class: "truth-place" });
  root.replaceChildren(
    make("h2", { class: "hidden-words" }, "Try a row"),
    make("div", { class: "try" }, make("section", { class: "input", "aria-label": "Input" }, sources, field), make("section", { class: "results", "aria-label": "Answers" }, truthPlace, emptyPlace, columnsPlace)),
  );
  const rowPicture = make("div", { class: "row-picture", "aria-live": "polite" });
  const loadRow = loader(rowPicture, { draw: drawRow });

  /* What is asked of the service for the input of a state: `{ body }`, or why nothing can be. */
  const questionOf = (state) => {
    const source = sourceOf(state, model);
    if (source === "row") return state.row === undefined ? { empty: "Choose a row." } : { body: { row: Number(state.row) } };
    if (source === "text") return state.text ? { body: { texts: [state.text] } } : { empty: "Type or paste a text to see the labels of every model." };
    if (source === "image") {
      const content = keptImage(state);
      if (!content && state.image === "file") return { empty: "This image was too large for the link. Choose it again." };
      return content ? { body: { images: [content] } } : { empty: "Choose or drop an image to see the labels of every model." };
    }
    if (!state.features) return { empty: "Paste a row of numbers to see the labels of every model." };
    const { values, wrong } = readFeatures(state.features, model);
    return wrong ? { empty: "This row cannot be read yet.", wrong } : { body: { features: [values] } };
  };

  const takeImage = async (chosen) => {
    if (!chosen) return;
    const read = await readImage(chosen);
    store.set({ ...keepImage(read), input: "image", file: `${chosen.name} ${chosen.size}` }, { step: true });
  };

  const fields = {
    text(state) {
      const area = make("textarea", { id: "text", rows: 12, placeholder: "Type or paste a text" });
      area.value = state.text ?? "";
      let wait = 0;
      const send = () => { clearTimeout(wait); store.set({ text: area.value, input: "text" }); };
      area.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(send, TYPING); });
      area.addEventListener("change", send);
      return [make("label", { class: "field", for: "text" }, "Text"), area, make("p", { class: "note link-note" })];
    },
    features(state) {
      const area = make("textarea", { id: "features", rows: 8, placeholder: "0.12, 3.4, −1.5, …", spellcheck: "false", class: "numbers" });
      area.value = state.features ?? "";
      const about = make("p", { class: "wrong", role: "status" });
      const send = () => store.set({ features: area.value.trim(), input: "features" });
      area.addEventListener("input", send);
      const expected = model.columns?.length ?? model.shape[0];
      const names = model.columns ? `: ${model.columns.slice(0, 6).join(", ")}${model.columns.length > 6 ? ", …" : ""}` : "";
      return [make("label", { class: "field", for: "features" }, "One row"), area, about, make("p", { class: "note" }, expected ? `${count(expected, "number")}${names}, separated by commas, tabs or spaces.` : "Numbers, separated by commas, tabs or spaces.")];
    },
    image(state) {
      const file = make("input", { type: "file", id: "image", accept: "image/*" });
      const preview = make("div", { class: "preview" });
      const content = keptImage(state);
      if (content) preview.replaceChildren(make("img", { class: "picture", alt: "Your image", src: `data:image/*;base64,${content}` }));
      file.addEventListener("change", () => takeImage(file.files[0]));
      const zone = make("label", { class: "drop", for: "image" }, make("strong", {}, "Choose an image"), " or drop or paste one here", file);
      zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
      zone.addEventListener("dragleave", () => zone.classList.remove("over"));
      zone.addEventListener("drop", (event) => { event.preventDefault(); zone.classList.remove("over"); takeImage(event.dataTransfer.files[0]); });
      return [zone, preview, make("p", { class: "note link-note" })];
    },
    row(state) {
      const box = make("input", { type: "number", id: "row", min: 0, step: 1 });
      box.value = state.row ?? "";
      box.addEventListener("change", () => { if (box.value !== "" && box.reportValidity()) store.set({ row: box.value, input: "row" }, { step: true }); });
      const rows = model.held_out.rows;
      const jump = (words, place, label) => button({ "aria-label": label, onclick: () => goTo(place()) }, words);
      const at = () => Number(field.dataset.offset ?? 0);
      return [
        make("div", { class: "row-controls" }, make("label", { class: "field", for: "row" }, "Row"), box,
          jump("‹", () => (at() + rows - 1) % rows, "Previous row"), jump("›", () => (at() + 1) % rows, "Next row"), jump("Random", () => Math.floor(Math.random() * rows), "Random row")),
        rowPicture,
      ];
    },
  };

  const goTo = (offset) => loadRow(async (signal) => {
    const page = await ask(modelPath(model, "rows", { show: "all", offset, limit: 1 }), { signal });
    store.set({ row: page.rows[0].row, input: "row" });
    asked = String(page.rows[0].row);
    return { offset, ...page };
  });

  function drawRow({ offset, rows: [row] }) {
    field.dataset.offset = offset;
    const box = field.querySelector("#row");
    if (box && document.activeElement !== box) box.value = row.row;
    truth = row.true;
    truthPlace.replaceChildren(trueLabels(row.true), make("p", { class: "note" }, make("a", { href: store.href({ view: "audit", of: "row", row: row.row }) }, "Can the layer answer this set?")));
    for (const column of columns.values()) column.redraw();
    const { kind, text, values, cut } = row.input;
    const copy = cut ? null : kind === "text" ? { text } : kind === "features" ? { features: values.join(", ") } : null;
    const picture = inputPicture(row.input);
    // Only this one scrolls, so that it must be within reach of the keyboard.
    if (kind === "text") picture.setAttribute("tabindex", 0);
    return [picture, copy ? button({ class: "button edit", onclick: () => store.set({ ...copy, input: kind }, { step: true }) }, "Edit a copy") : ""];
  }

  const drawField = (state) => {
    const source = sourceOf(state, model);
    const shown = `${model.name} ${source} ${source === "image" ? state.file ?? "" : ""}`;
    if (field.dataset.shown === shown) return;
    field.dataset.shown = shown;
    field.replaceChildren(...fields[source](state));
  };

  /* Brings the field to a state that Back, Forward or a link brought. */
  const followField = (state) => {
    const source = sourceOf(state, model);
    const area = field.querySelector("textarea");
    if (area && document.activeElement !== area) area.value = state[source] ?? "";
    const words = field.querySelector(".link-note");
    if (words) {
      const far = source === "image" ? state.image === "file" : state.text && !fitsLink(state.text);
      words.textContent = far ? `This ${source} is too long for a link: it stays in this tab only.` : "";
    }
    const wrong = field.querySelector(".wrong");
    if (wrong) wrong.textContent = questionOf(state).wrong ?? "";
  };

  const columnFor = (peer) => {
    const about = make("p", { class: "sides" });
    const own = make("p", { class: "note" });
    const body = make("div", { class: "column-body", "aria-live": "polite" });
    const element = make("section", { class: "column" }, make("h3", {}, nameOf(peer.name), peer.engine === "onnx" ? make("span", { class: "engine" }, "ONNX") : null), about, own, body);
    let last = null;
    const draw = (answer) => {
      last = answer;
      const [row] = answer.rows;
      about.textContent = answerSummary(row.labels, truth);
      // A rule that is chosen stands in the bar; models' own rules may differ.
      own.textContent = store.state.kind ? "" : answer.rule.text;
      return answerBars(row, truth);
    };
    const load = loader(body, { draw, onState: (state) => { if (state === "error") about.textContent = ""; } });
    return {
      element,
      ask: (body_, rule) => load(async (signal) => (await ask("/predict", { body: { model: peer.name, ...body_, rule, top: TOP, seed: SEED }, signal })).answers[0]),
      clear: () => { last = null; about.textContent = ""; load.clear(); },
      redraw: () => { if (last) body.replaceChildren(draw(last)); },
    };
  };

  const drawColumns = (state) => {
    const shown = sourceOf(state, model) === "row" ? peers(model) : takers(model);
    if ([...columns.keys()].join("\n") !== shown.map(({ name }) => name).join("\n")) {
      columns = new Map(shown.map((peer) => [peer.name, columnFor(peer)]));
      columnsPlace.replaceChildren(...[...columns.values()].map(({ element }) => element));
    }
    const question = questionOf(state);
    emptyPlace.replaceChildren(...(question.empty ? [notice("empty", question.empty)] : []));
    columnsPlace.hidden = !question.body;
    for (const peer of shown) {
      const column = columns.get(peer.name);
      const rule = ruleBody(state, peer);
      const words = question.body ? JSON.stringify([question.body, rule, peer.rule]) : "";
      if (column.asked === words) continue;
      column.asked = words;
      if (question.body) column.ask(question.body, rule);
      else column.clear();
    }
  };

  const paste = (event) => {
    const file = [...(event.clipboardData?.files ?? [])][0];
    if (!root.isConnected) document.removeEventListener("paste", paste);
    else if (file && sourceOf(store.state, model) === "image") takeImage(file);
  };
  document.addEventListener("paste", paste);

  return {
    update(state, shownModel) {
      if (model?.name !== shownModel.name) { field.dataset.shown = ""; asked = ""; columns = new Map(); }
      model = shownModel;
      const source = sourceOf(state, model);
      const key = `${model.name} ${model.held_out_state}`;
      if (sources.dataset.model !== key) {
        const list = sourcesOf(model).map((each) => [each, WORDS[each]]);
        sources.replaceChildren(choice("Input", "source", list, source, (value) => store.set({ input: value }, { step: true })));
        sources.dataset.model = key;
      }
      choose(sources, source);
      drawField(state);
      followField(state);
      if (source !== "row") { truth = null; truthPlace.replaceChildren(); asked = ""; }
      else if (state.row === undefined) { goTo(0); return; }
      else if (asked !== state.row) {
        asked = String(state.row);
        field.querySelector("#row").value = state.row;
        loadRow((signal) => ask(modelPath(model, "rows", { row: state.row }), { signal }));
      }
      drawColumns(state);
    },
  };
};
