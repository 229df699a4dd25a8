// The rule that all views answer with, its number, and what it gives on held-out rows.
import { count, decimalWords, make, nameOf, percentWords } from "./elements.js";
import {
  MEASURING,
  costOf,
  costsOf,
  curvable,
  curveOf,
  factsOf,
  kindsOf,
  letterOf,
  pointOf,
  ruleOf,
  titleOf,
  usualValue,
  withoutRows,
} from "./rules.js";

const SAVED = "";
const LATE = 250;

const nearest = (values, value) =>
  values.reduce((best, one, at) => (Math.abs(one - value) < Math.abs(values[best] - value) ? at : best), 0);

/* The bar in `root`; `update` follows the state. */
export const ruleBar = (root, { store }) => {
  const slider = make("input", { type: "range", id: "rule-slider", min: 0, step: 1 });
  const box = make("input", { type: "number", id: "rule-value", step: "any", min: 0 });
  const letter = make("span", { class: "letter" });
  const sliderLabel = make("label", { class: "slider" }, letter, slider);
  const select = make("select", { id: "rule-kind" });
  const chosen = make("label", { class: "rule-kind" }, make("span", {}, "Rule"), select);
  const guarantee = make("p", { class: "guarantee" });
  const figures = Object.fromEntries(["size", "error", "worst", "cost"].map((name) => [name, make("dd", {}, "…")]));
  const facts = make(
    "dl",
    { class: "figures" },
    make("div", {}, make("dt", {}, "Expected size"), figures.size),
    make("div", {}, make("dt", {}, "Error"), figures.error),
    make("div", {}, make("dt", {}, "Worst class"), figures.worst),
    make("div", {}, make("dt", {}, "Cost per row"), figures.cost),
  );
  const about = make("p", { class: "note figures-note" });
  root.replaceChildren(
    make(
      "div",
      { class: "rule-controls" },
      chosen,
      sliderLabel,
      make("label", { class: "exact" }, make("span", { class: "hidden-words" }, "Exact value"), box),
    ),
    make("div", { class: "rule-facts" }, facts, make("div", { class: "rule-words" }, guarantee, about)),
  );
  let values = [];
  let model = null;
  let asked = null;
  let late = 0;

  const setValue = (value) => store.set({ kind: ruleOf(store.state, model).kind, value });
  select.addEventListener("change", () => setKind(select.value));
  slider.addEventListener("input", () => setValue(values[Number(slider.value)]));
  box.addEventListener("change", () => {
    if (box.value !== "" && box.reportValidity()) setValue(Number(box.value));
  });

  const setKind = (name) => {
    if (name === SAVED) {
      store.set({ kind: "", value: "" });
      return;
    }
    const { slider: option } = factsOf(model, name);
    const before = ruleOf(store.state, model);
    const value = before.value !== null && factsOf(model, before.kind)?.slider === option ? before.value : usualValue(model, option);
    store.set({ kind: name, value: name === "top-k" ? Math.max(1, Math.round(value)) : value });
  };

  const drawKinds = (rule) => {
    const own = model.rule ? `As saved: ${model.rule.text}` : `None saved: ${count(usualValue(model, "k"), "label")} on average`;
    const entries = [[SAVED, own], ...kindsOf(model).map(({ kind }) => [kind, titleOf(kind)])];
    const words = JSON.stringify(entries);
    // Made anew only if it differs, so that an open or focused control stays.
    if (select.dataset.entries !== words) select.replaceChildren(...entries.map(([value, title]) => make("option", { value }, title)));
    select.dataset.entries = words;
    select.value = store.state.kind ?? SAVED;
    guarantee.textContent = guaranteeWords(factsOf(model, rule.kind), rule) || model.rule?.guarantee || "";
  };

  const drawNumber = (rule, curve) => {
    const moves = curvable(model, rule);
    sliderLabel.hidden = box.parentElement.hidden = !moves;
    if (!moves) return;
    const option = factsOf(model, rule.kind).slider;
    letter.textContent = letterOf(option);
    box.max = option === "k" ? model.labels : 1;
    if (document.activeElement !== box) box.value = rule.value;
    if (!curve) return;
    values = curve.values;
    slider.max = values.length - 1;
    slider.value = nearest(values, rule.value);
    slider.setAttribute("aria-valuetext", `${letterOf(option)} = ${rule.value}`);
  };

  const drawFigures = (point, rule) => {
    const costs = costsOf(store.state);
    figures.size.replaceChildren(decimalWords(point.size), make("small", {}, " labels"));
    figures.error.replaceChildren(percentWords(point.error));
    figures.worst.replaceChildren(
      percentWords(point.worst.error),
      point.worst.label === null
        ? make("small", {}, " too few rows")
        : make("small", { title: point.worst.label }, " ", nameOf(point.worst.label)),
    );
    figures.cost.replaceChildren(decimalWords(costOf(point, costs)));
    root.dataset.value = rule.value;
  };

  const refuse = (error) => {
    for (const figure of Object.values(figures)) figure.replaceChildren("–");
    about.classList.add("wrong");
    about.textContent = error.message;
  };
  const measure = async (rule, isLatest) => {
    const curve = curvable(model, rule) ? await curveOf(model, rule.kind) : null;
    if (!isLatest()) return;
    drawNumber(rule, curve);
    const point = await pointOf(model, rule);
    if (!isLatest()) return;
    drawFigures(point, rule);
    about.classList.remove("wrong");
    const fitted = curve?.fitted_on ? `, fitted on ${count(curve.fitted_on.rows, "other row")}` : "";
    about.textContent = `${model.name}, measured on ${count(model.held_out.rows, "held-out row")}${fitted}.`;
  };
  const fill = async (rule) => {
    const mine = (asked = {});
    const isLatest = () => mine === asked;
    root.setAttribute("aria-busy", "true");
    clearTimeout(late);
    late = setTimeout(() => {
      about.textContent = MEASURING;
      facts.classList.add("waiting");
    }, LATE);
    try {
      await measure(rule, isLatest);
    } catch (error) {
      if (error.name !== "ServiceError") throw error;
      if (isLatest()) refuse(error);
    }
    if (!isLatest()) return;
    clearTimeout(late);
    facts.classList.remove("waiting");
    root.setAttribute("aria-busy", "false");
  };

  return {
    update(state, shownModel) {
      model = shownModel;
      const rule = ruleOf(state, model);
      const key = JSON.stringify([model.name, model.rule, model.held_out_state, rule, state.kind ?? SAVED]);
      if (key === root.dataset.key) {
        refreshCost(rule);
        return;
      }
      root.dataset.key = key;
      drawKinds(rule);
      drawNumber(rule, null);
      if (!model.held_out) {
        sliderLabel.hidden = box.parentElement.hidden = true;
        for (const figure of Object.values(figures)) figure.replaceChildren("–");
        about.textContent = withoutRows(model);
        return;
      }
      fill(rule);
    },
  };

  async function refreshCost(rule) {
    if (!model.held_out || root.getAttribute("aria-busy") === "true" || about.classList.contains("wrong")) return;
    drawFigures(await pointOf(model, rule), rule);
  }
};

const guaranteeWords = (facts, rule) => {
  if (!facts?.guarantee) return "";
  const words = facts.guarantee.replace(new RegExp(`\\b${facts.slider}\\b`), rule.value);
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
};
