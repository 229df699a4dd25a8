// The rules in words, the rule that is chosen, and what it gives on held-out rows.
import { ask, modelPath } from "./service.js";

const TITLES = {
  "top-k": "Top-K: always K labels",
  "average-k": "Average-K: K labels on average",
  "average-error": "Error rate: miss the true label in alpha of rows",
  "pointwise-error": "Error rate, with sets that adapt to the row",
  "class-conditional": "Error rate in every class",
  "recall-control": "Recall: miss alpha of the true labels",
  "risk-control": "Precision: wrong labels among at most alpha",
  "per-label": "A threshold per label, K labels on average",
};
const LETTERS = { k: "K", alpha: "Alpha" };
const DEFAULT_K = 3;
const DEFAULT_ALPHA = 0.1;

export const titleOf = (kind) => TITLES[kind] || kind;
export const letterOf = (option) => LETTERS[option] || option;
export const factsOf = (model, kind) => model.kinds.find((each) => each.kind === kind);

/* The kinds whose number a slider can set. */
export const kindsOf = (model) => model.kinds.filter(({ slider }) => slider);
export const usualValue = (model, option) => (option === "k" ? Math.min(DEFAULT_K, model.labels) : DEFAULT_ALPHA);

/* A number of the address, which anybody may have written. */
const numberOf = (words) => (words !== undefined && Number.isFinite(Number(words)) ? Number(words) : null);

/* The rule of a state for a model: the chosen one, else the model's own, else an average size. */
export const ruleOf = (state, model) => {
  const kind = state.kind ?? (model.rule ? null : "average-k");
  if (kind) return { kind, value: numberOf(state.value) ?? usualValue(model, factsOf(model, kind)?.slider), own: false };
  const slider = factsOf(model, model.rule.kind)?.slider;
  return { kind: model.rule.kind, value: (slider && model.rule.options[slider]) ?? null, own: true };
};

/* The rule as the service reads it: nothing, or null, for the model's own. */
export const ruleQuery = (state, model) => {
  const { kind, value, own } = ruleOf(state, model);
  return own ? {} : { kind, value };
};
export const ruleBody = (state, model) => {
  const { kind, value, own } = ruleOf(state, model);
  return own ? null : { kind, options: optionsOf(model, kind, value) };
};
export const optionsOf = (model, kind, value) => {
  const facts = factsOf(model, kind);
  return facts ? { ...facts.fixed, [facts.slider]: value } : {};
};

const answers = new Map();
export const forgetFigures = () => answers.clear();

/* The answer to a path, asked for once; a refusal is not kept. */
const askOnce = (path) => {
  if (!answers.has(path))
    answers.set(
      path,
      ask(path).catch((error) => {
        answers.delete(path);
        throw error;
      }),
    );
  return answers.get(path);
};

/* The curve of a kind of rule on a model's held-out rows. */
export const curveOf = (model, kind) => askOnce(modelPath(model, "curve", { kind }));

const figuresAt = (curve, at) => ({
  value: curve.values[at],
  size: curve.size[at],
  error: curve.error[at],
  empty: curve.empty[at],
  misses: curve.misses[at],
  worst: { label: curve.worst_class.label[at], error: curve.worst_class.error[at] },
});
export const figuresOf = (curve) => curve.values.map((_, at) => figuresAt(curve, at));

/* Whether a slider moves a rule; a saved one may be of another kind, or have other options. */
export const curvable = (model, { kind, own }) => {
  const facts = factsOf(model, kind);
  return Boolean(facts?.slider) && (!own || Object.entries(facts.fixed).every(([option, value]) => model.rule.options[option] === value));
};

/* What a rule gives on held-out rows; its number may lie between the steps of the slider. */
export const pointOf = async (model, rule) => {
  const steps = rule.own ? null : await curveOf(model, rule.kind);
  const at = steps ? steps.values.indexOf(rule.value) : -1;
  if (at >= 0) return figuresAt(steps, at);
  const { worst_class: worst, ...rest } = await askOnce(
    modelPath(model, "figures", rule.own ? {} : { kind: rule.kind, value: rule.value }),
  );
  return { ...rest, worst };
};

export const MEASURING = "The rule is being measured on the held-out rows; the first time takes a while …";

/* Why a model has nothing to measure rules on. */
export const withoutRows = (model) =>
  model.held_out_state === "opening"
    ? "The held-out rows of this model are being read …"
    : `${model.note || "This model has no held-out rows here."} Rules are measured on them: start the service with --data FILE.`;

export const costsOf = (state) => ({ label: numberOf(state.cost_label) ?? 1, miss: numberOf(state.cost_miss) ?? 10 });
export const costOf = (point, costs) => costs.label * point.size + costs.miss * point.misses;
