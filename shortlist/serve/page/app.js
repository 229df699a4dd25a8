// Starts the page: loads the models, and shows the view that the address names.
import { VIEWS, addressStore } from "./address.js";
import { auditView } from "./audit.js";
import { button, make, notice } from "./elements.js";
import { labelView, labelsView } from "./labels.js";
import { ruleBar } from "./rule_bar.js";
import { ruleView } from "./rule.js";
import { rowsView } from "./rows.js";
import { ask } from "./service.js";
import { tryView } from "./try.js";

const MAKERS = { try: tryView, rule: ruleView, rows: rowsView, labels: labelsView, label: labelView, audit: auditView };
const main = document.getElementById("main");
const bar = document.getElementById("rule-bar");
const models = [];
const OPENING = 1000;

const loadModels = async () => models.splice(0, models.length, ...(await ask("/models")).models);
const modelOf = (state) => models.find(({ name }) => name === state.model) || models[0];
/* The models that take the same input, and those of the same held-out rows. */
const takers = (model) => models.filter((each) => each.kind === model.kind && JSON.stringify(each.shape) === JSON.stringify(model.shape));
const peers = (model) =>
  takers(model).filter(
    (each) =>
      each === model ||
      (each.held_out && model.held_out && each.held_out.data === model.held_out.data && each.held_out.part === model.held_out.part),
  );

const tabs = new Map(Object.entries(VIEWS).map(([name, words]) => [name, make("a", { href: `#${name}` }, words)]));
document.getElementById("views").append(...tabs.values());

const drawHead = (state, model) => {
  for (const [name, tab] of tabs) {
    tab.href = store.href({ view: name, offset: "" });
    if (name === state.view || (name === "labels" && state.view === "label")) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  const select = document.getElementById("model");
  select.parentElement.hidden = models.length < 2;
  const words = JSON.stringify(models.map(({ name }) => name));
  if (select.dataset.models !== words) select.replaceChildren(...models.map(({ name }) => make("option", { value: name }, name)));
  select.dataset.models = words;
  select.value = model.name;
  document.title = `${VIEWS[state.view] ?? state.label ?? "Label"} · ${model.name} · shortlist`;
};

let view = null;
let shown = "";
let rule = null;

const show = (state) => {
  const model = modelOf(state);
  drawHead(state, model);
  bar.hidden = state.view === "audit";
  bar.dataset.view = state.view;
  if (shown !== state.view) {
    shown = state.view;
    const root = make("div", { class: `view ${state.view}-view` });
    main.replaceChildren(root);
    view = MAKERS[state.view](root, context);
  }
  rule.update(state, model);
  view.update(state, model);
};

/* Held-out rows are read while the service answers already. */
const awaitHeldOut = async () => {
  while (models.some((model) => model.held_out_state === "opening")) {
    await new Promise((done) => setTimeout(done, OPENING));
    try {
      await loadModels();
    } catch (error) {
      if (error.name !== "ServiceError") throw error;
      return;
    }
    show(store.state);
  }
};

const store = addressStore((state) => {
  if (models.length) show(state);
});
const context = {
  store,
  takers,
  peers,
  reload: async () => {
    await loadModels();
    show(store.state);
  },
};

const start = async () => {
  main.replaceChildren(notice("loading", "Loading the models …"));
  try {
    await loadModels();
  } catch (error) {
    if (error.name !== "ServiceError") throw error;
    main.replaceChildren(notice("error", error.message, button({ onclick: start }, "Try again")));
    return;
  }
  if (!models.length) {
    main.replaceChildren(notice("empty", "This service has no model."));
    return;
  }
  rule = ruleBar(bar, context);
  shown = "";
  show(store.state);
  awaitHeldOut();
};

document
  .getElementById("model")
  .addEventListener("change", (event) => store.set({ model: event.target.value, row: "", offset: "" }, { step: true }));
start();
