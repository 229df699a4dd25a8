// What a model can be asked about: a text, a row of features, an image or a held-out row; and the fields for the first three.
import { isKept, keep, kept } from "./address.js";
import { count, make } from "./elements.js";

const TYPING = 300;
const SOURCES = { text: "text", images: "image", features: "features" };
export const SOURCE_WORDS = { text: "Text", features: "Features", image: "Image", row: "Held-out row" };
const EMPTY = {
  text: "Type or paste a text to see the labels of every model.",
  features: "Paste a row of numbers to see the labels of every model.",
  image: "Choose or drop an image to see the labels of every model.",
  row: "Choose a row.",
};

export const sourcesOf = (model) => [SOURCES[model.kind], model.held_out ? "row" : null].filter(Boolean);
export const sourceOf = (state, model) => {
  const sources = sourcesOf(model);
  return sources.includes(state.input) ? state.input : sources.includes("row") && !state[sources[0]] ? "row" : sources[0];
};
const widthOf = (model) => model.columns?.length ?? model.shape[0];

/* The numbers of one pasted line, or what is wrong with it. */
const readFeatures = (text, model) => {
  const cells = /[,;\t]/.test(text) ? text.split(/[,;\t]/).map((cell) => cell.trim()) : text.trim().split(/\s+/);
  const values = cells.map(Number);
  if (widthOf(model) && values.length !== widthOf(model))
    return { wrong: `This model takes ${count(widthOf(model), "number")}; this row has ${values.length}.` };
  const odd = values.findIndex((value, at) => cells[at] === "" || !Number.isFinite(value));
  return odd < 0 ? { values } : { wrong: `Each cell must be a number; cell ${odd + 1} is “${cells[odd].slice(0, 40)}”.` };
};

/* What the service is asked for the input of a state: `body`; or why nothing is asked: `empty`, and `wrong` for a field. */
export const questionOf = (state, model) => {
  const source = sourceOf(state, model);
  if (source === "row") return state.row === undefined ? { empty: EMPTY.row } : { body: { row: Number(state.row) } };
  const content = kept(source, state[source]);
  if (!content) return { empty: isKept(state[source]) ? `This ${source} was too long for the link. Choose it again.` : EMPTY[source] };
  if (source === "text") return { body: { texts: [content] } };
  if (source === "image") return { body: { images: [content] } };
  const { values, wrong } = readFeatures(content, model);
  return wrong ? { empty: "This row cannot be read yet.", wrong } : { body: { features: [values] } };
};

const keptNote = () => {
  const note = make("p", { class: "note" });
  return {
    note,
    follow: (source, state) => {
      note.textContent = isKept(state[source]) ? `This ${source} is too long for a link: it stays in this tab.` : "";
    },
  };
};

/* Fields have an `element`, and `follow` brings them to a state that a link or the browser's Back brought. */
const textField = (store) => {
  const area = make("textarea", { id: "text", rows: 12, placeholder: "Type or paste a text" });
  const { note, follow } = keptNote();
  let wait = 0;
  const send = () => {
    clearTimeout(wait);
    store.set({ text: keep("text", area.value), input: "text" });
  };
  area.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(send, TYPING);
  });
  area.addEventListener("change", send);
  return {
    element: make("div", {}, make("label", { class: "field", for: "text" }, "Text"), area, note),
    follow(state) {
      follow("text", state);
      if (document.activeElement !== area) area.value = kept("text", state.text) ?? "";
    },
  };
};

const featuresField = (store, model) => {
  const area = make("textarea", { id: "features", rows: 8, placeholder: "0.12, 3.4, -1.5, …", spellcheck: "false", class: "numbers" });
  const wrong = make("p", { class: "wrong", role: "status" });
  const { note, follow } = keptNote();
  area.addEventListener("input", () => store.set({ features: keep("features", area.value.trim()), input: "features" }));
  const names = model.columns ? `: ${model.columns.slice(0, 6).join(", ")}${model.columns.length > 6 ? ", …" : ""}` : "";
  const takes = widthOf(model) ? `${count(widthOf(model), "number")}${names}` : "Numbers";
  return {
    element: make(
      "div",
      {},
      make("label", { class: "field", for: "features" }, "One row"),
      area,
      wrong,
      make("p", { class: "note" }, `${takes}, separated by commas, tabs or spaces.`),
      note,
    ),
    follow(state) {
      follow("features", state);
      wrong.textContent = questionOf(state, model).wrong ?? "";
      if (document.activeElement !== area) area.value = kept("features", state.features) ?? "";
    },
  };
};

const readImage = (file) =>
  new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });

const imageField = (store) => {
  const file = make("input", { type: "file", id: "image", accept: "image/*" });
  const preview = make("div", { class: "preview" });
  const { note, follow } = keptNote();
  const zone = make("label", { class: "drop", for: "image" }, make("strong", {}, "Choose an image"), " or drop or paste one here", file);
  const take = async (chosen) => {
    if (chosen) store.set({ image: keep("image", await readImage(chosen)), input: "image" }, { step: true });
  };
  const over = (event, inside) => {
    event.preventDefault();
    zone.classList.toggle("over", inside);
  };
  file.addEventListener("change", () => take(file.files[0]));
  zone.addEventListener("dragover", (event) => over(event, true));
  zone.addEventListener("dragleave", (event) => over(event, false));
  zone.addEventListener("drop", (event) => {
    over(event, false);
    take(event.dataTransfer.files[0]);
  });
  const paste = (event) => {
    if (zone.isConnected) take([...(event.clipboardData?.files ?? [])][0]);
    else document.removeEventListener("paste", paste);
  };
  document.addEventListener("paste", paste);
  return {
    element: make("div", {}, zone, preview, note),
    follow(state) {
      follow("image", state);
      const content = kept("image", state.image);
      const picture = content && make("img", { class: "picture", alt: "Your image", src: `data:image/*;base64,${content}` });
      if (preview.firstChild?.src !== picture?.src) preview.replaceChildren(...(picture ? [picture] : []));
    },
  };
};

export const INPUT_FIELDS = { text: textField, features: featuresField, image: imageField };
