// Can the output layer ever answer a label set? Verdict, certificate and the nearest set that it can answer.
import { chips } from "./answers.js";
import { button, choice, choose, loader, make, nameOf, notice } from "./elements.js";
import { labelEntry } from "./label_entry.js";
import { ask } from "./service.js";

const MODES = { "top-k": "rank these labels above all others", sign: "give exactly these labels positive scores" };
const VERDICTS = {
  argmaxable: ["Yes.", "Some feature vector makes the layer"],
  unargmaxable: ["No.", "Whatever the input, no feature vector makes the layer"],
  undecided: ["Not decided.", "There is neither a proof nor an example yet that a feature vector makes the layer"],
};
const SOURCES = { labels: "Labels", row: "True set of a row" };

const readLabels = (state) => {
  try {
    const found = JSON.parse(state.labels ?? "[]");
    return Array.isArray(found) ? found.filter((label) => typeof label === "string") : [];
  } catch {
    return [];
  }
};

export const auditView = (root, { store }) => {
  let model = null;
  let asked = "";
  const source = make("div", { class: "filters" });
  const field = make("div", { class: "audit-field" });
  const region = make("div", { class: "verdict-place", "aria-live": "polite" });
  root.replaceChildren(
    make("h2", {}, "Can this layer ever answer it?"),
    make(
      "p",
      { class: "about" },
      "A layer with fewer features than labels has label sets that no input can produce. Choose a set; the answer comes with a proof.",
    ),
    source,
    field,
    region,
  );
  source.append(
    choice("Set", "of", Object.entries(SOURCES), "labels", (value) => store.set({ of: value === "labels" ? "" : value }, { step: true })),
    choice("Can it", "mode", Object.entries(MODES), "top-k", (value) =>
      store.set({ mode: value === "top-k" ? "" : value }, { step: true }),
    ),
  );
  const [setChoice, modeChoice] = source.children;

  const setLabels = (labels) => store.set({ labels: labels.length ? JSON.stringify(labels) : "", of: "" }, { step: true });
  const chosenChip = (label) =>
    make(
      "li",
      {},
      make(
        "span",
        { class: "chip removable" },
        nameOf(label),
        make(
          "button",
          {
            type: "button",
            "aria-label": `Remove ${label}`,
            onclick: () => {
              setLabels(readLabels(store.state).filter((each) => each !== label));
              field.querySelector("input")?.focus();
            },
          },
          "×",
        ),
      ),
    );
  const drawField = (state) => {
    const shown = `${model.name} ${state.of ?? ""}`;
    if (field.dataset.shown !== shown) {
      field.dataset.shown = shown;
      if (state.of === "row") {
        const box = make("input", { type: "number", id: "audit-row", min: 0, step: 1 });
        box.value = state.row ?? "";
        box.addEventListener("change", () => {
          if (box.value !== "" && box.reportValidity()) store.set({ row: box.value }, { step: true });
        });
        field.replaceChildren(make("div", { class: "row-controls" }, make("label", { class: "field", for: "audit-row" }, "Row"), box));
      } else {
        const entry = labelEntry(model, {
          legend: "Add a label",
          placeholder: "Type a part of its name",
          leaveOut: () => readLabels(store.state),
          onPick: (label) => setLabels([...readLabels(store.state), label]),
          onErase: () => setLabels(readLabels(store.state).slice(0, -1)),
        });
        field.replaceChildren(make("ul", { class: "chips chosen", "aria-label": "Chosen labels" }), entry.element);
      }
    }
    const list = field.querySelector(".chosen");
    if (list) list.replaceChildren(...readLabels(state).map(chosenChip));
    const box = field.querySelector("#audit-row");
    if (box && document.activeElement !== box) box.value = state.row ?? "";
  };

  const load = loader(region, {
    draw(found) {
      const [short, long] = VERDICTS[found.verdict];
      return make(
        "article",
        { class: `verdict ${found.verdict}` },
        make("p", { class: "short" }, make("strong", {}, short), ` ${long} ${MODES[found.mode]}.`),
        found.labels ? [make("h3", {}, "The set"), chips(found.labels)] : null,
        make("h3", {}, "Certificate"),
        make("p", {}, found.certificate.words),
        found.certificate.verified ? make("p", { class: "note" }, "Verified independently of the solver that found it.") : null,
        nearest(found),
      );
    },
  });
  const nearest = ({ nearest: near, verdict }) => {
    if (!near)
      return verdict === "unargmaxable" ? make("p", { class: "note" }, "No set nearby was found that the layer can answer.") : null;
    const added = new Set(near.added);
    return make(
      "div",
      { class: "nearest" },
      make("h3", {}, near.proved ? "The nearest set that it can answer" : "A near set that it can answer"),
      chips(near.labels, (label) => (added.has(label) ? "hit" : "")),
      make(
        "p",
        { class: "sides" },
        near.added.length ? ["added ", near.added.flatMap((label, at) => [at ? ", " : "", nameOf(label)])] : null,
        near.added.length && near.removed.length ? "; " : null,
        near.removed.length ? ["left out ", near.removed.flatMap((label, at) => [at ? ", " : "", nameOf(label)])] : null,
      ),
      button({ onclick: () => setLabels(near.labels) }, "Check this set"),
    );
  };

  return {
    update(state, shownModel) {
      model = shownModel;
      const mode = state.mode in MODES ? state.mode : "top-k";
      choose(setChoice, state.of === "row" ? "row" : "labels");
      choose(modeChoice, mode);
      drawField(state);
      const labels = readLabels(state);
      const body = state.of === "row" ? (state.row === undefined ? null : { row: Number(state.row) }) : labels.length ? { labels } : null;
      const words = JSON.stringify([model.name, mode, state.of, body]);
      if (words === asked) return;
      asked = words;
      if (!body) {
        load.clear(notice("empty", state.of === "row" ? "Choose a held-out row." : "Choose at least one label."));
        return;
      }
      load((signal) => ask("/audit", { body: { model: model.name, mode, ...body }, signal }));
    },
  };
};
