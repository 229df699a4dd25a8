// What the rule gives on held-out rows: a chart of its curve, all models beside each other, costs, and saving it.
import { button, choice, choose, decimalWords, loader, make, nameOf, notice, percentWords } from "./elements.js";
import { costOf, costsOf, curvable, curveOf, factsOf, figuresOf, letterOf, pointOf, ruleOf, withoutRows } from "./rules.js";
import { saveDialog } from "./save.js";
/* global drawChart, swatch -- of chart.js, which the report shares; it is no module. */

const PLOTS = {
  error: ["Error", { label: "error", percent: true }, (point) => point.error],
  size: ["Size", { label: "labels on average" }, (point) => point.size],
  worst: ["Worst class", { label: "error of the worst class", percent: true }, (point) => point.worst.error],
  empty: ["Empty sets", { label: "rows with an empty set", percent: true }, (point) => point.empty],
  cost: ["Cost", { label: "cost per row" }, (point, costs) => costOf(point, costs)],
};
const COLORS = 8;
const REST =
  "Worst class: the label that is missed most, of those with enough rows. Cost: labels in the set and missed true labels, each at its price.";
const MEANINGS = {
  "one class": `Error: rows whose true label is not in the set. ${REST}`,
  sets: `Error: the share of a row's true labels that its set lacks, on average. ${REST}`,
};

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesColor = (at) => color(`--series-${(at % COLORS) + 1}`);

/* A chart as `chart.js` takes it: one line per model, and a mark where the slider is. */
const chartOf = (found, plot, rule, costs) => {
  const [, axis, read] = PLOTS[plot];
  const known = found.filter(({ curve }) => curve);
  const option = known[0]?.curve.option;
  const series = known.map(({ model, curve, place }) => ({
    name: model.name,
    group: model.name,
    kind: "line",
    color: seriesColor(place),
    dash: place < COLORS ? "solid" : "dash",
    marked: true,
    marker: "circle",
    legend: true,
    x: curve.values,
    y: figuresOf(curve).map((point) => read(point, costs) ?? null),
  }));
  const guides = rule.value === null ? [] : [[`${letterOf(option)} = ${rule.value}`, rule.value]];
  return { series, guides, note: "", x: { label: letterOf(option), scale: "linear" }, y: { scale: "linear", limits: null, ...axis } };
};

export const ruleView = (root, { store, peers, reload }) => {
  let model = null;
  let drawn = null;
  const plots = make("div", { class: "filters" });
  const chart = make("div", { class: "chart", role: "img", "aria-label": "What the rule gives on held-out rows" });
  const legend = make("ul", { class: "legend static" });
  const cheapest = make("p", { class: "cheapest" });
  const cost = (name, words, value) => {
    const input = make("input", { type: "number", min: 0, step: "any", id: name });
    input.addEventListener("input", () => {
      if (input.value !== "" && input.checkValidity()) store.set({ [name]: Number(input.value) === value ? "" : input.value });
    });
    return make("label", { class: "field", for: name }, words, " ", input);
  };
  const costs = make(
    "fieldset",
    { class: "costs" },
    make("legend", {}, "Cost"),
    cost("cost_label", "per label", 1),
    cost("cost_miss", "per miss", 10),
  );
  const region = make("div", { class: "below", "aria-live": "polite" });
  const meaning = make("p", { class: "note" });
  plots.append(
    choice(
      "Show",
      "plot",
      Object.entries(PLOTS).map(([key, [words]]) => [key, words]),
      "error",
      (plot) => store.set({ plot: plot === "error" ? "" : plot }),
    ),
  );
  root.replaceChildren(
    make("h2", {}, "What the rule gives"),
    make("div", { class: "rule-options" }, plots, costs),
    chart,
    legend,
    cheapest,
    region,
    meaning,
  );

  const draw = () => {
    if (!drawn || !chart.isConnected) return;
    const state = store.state;
    const plot = state.plot in PLOTS ? state.plot : "error";
    const made = chartOf(drawn.found, plot, drawn.rule, costsOf(state));
    root.classList.toggle("no-chart", !made.series.length);
    if (!made.series.length) {
      chart.replaceChildren();
      legend.replaceChildren();
      return;
    }
    drawChart(chart, made, {
      hidden: new Set(),
      scale: "",
      shades: { ink: color("--ink"), soft: color("--soft"), grid: color("--grid"), inkCode: "ink" },
    });
    legend.replaceChildren(...made.series.map((series) => make("li", {}, swatch(series, series.color), nameOf(series.name))));
  };
  new ResizeObserver(draw).observe(chart);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const table = ({ found }) => {
    const heads = ["Size", "Error", "Worst class", "Empty", "Cost"];
    const prices = costsOf(store.state);
    const row = ({ model: peer, point, wrong }) =>
      make(
        "tr",
        { class: peer === model ? "chosen" : "" },
        make("th", { scope: "row" }, nameOf(peer.name)),
        point
          ? [
              make("td", {}, decimalWords(point.size)),
              make("td", {}, percentWords(point.error)),
              make(
                "td",
                {},
                percentWords(point.worst.error),
                point.worst.label === null ? null : make("small", { title: point.worst.label }, nameOf(point.worst.label)),
              ),
              make("td", {}, percentWords(point.empty)),
              make("td", {}, decimalWords(costOf(point, prices))),
            ]
          : make("td", { colspan: heads.length, class: "reason" }, wrong),
        make("td", {}, useButton(peer)),
      );
    return make(
      "div",
      { class: "scroll" },
      make(
        "table",
        { class: "models-table" },
        make("caption", { class: "hidden-words" }, "Models at this rule"),
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            make("th", { scope: "col" }, "Model"),
            heads.map((words) => make("th", { scope: "col" }, words)),
            make("th", { scope: "col" }, make("span", { class: "hidden-words" }, "Save")),
          ),
        ),
        make("tbody", {}, found.map(row)),
      ),
    );
  };
  const useButton = (peer) => {
    const saved = !store.state.kind && Boolean(peer.rule);
    if (!peer.can_save && !saved) return make("span", { class: "note" }, "cannot be saved here");
    return button(
      {
        disabled: saved,
        "aria-label": `Use this rule for ${peer.name}`,
        onclick: () => saveDialog(peer, ruleOf(store.state, peer), reload),
      },
      saved ? "In use" : ["Use", make("span", { class: "rest" }, " this rule")],
    );
  };

  const drawCheapest = ({ found, rule }) => {
    const own = found.find(({ model: peer }) => peer === model);
    if (!own?.curve) {
      cheapest.replaceChildren();
      return;
    }
    const prices = costsOf(store.state);
    const best = figuresOf(own.curve).reduce((least, point) => (costOf(point, prices) < costOf(least, prices) ? point : least));
    const words = `Cheapest for ${model.name}: ${letterOf(own.curve.option)} = ${best.value}, ${decimalWords(costOf(best, prices))} per row.`;
    const go = button(
      { class: "link", onclick: () => store.set({ kind: rule.kind, value: best.value }) },
      `Set ${letterOf(own.curve.option)} to ${best.value}`,
    );
    cheapest.replaceChildren(words, " ", best.value === rule.value ? "" : go);
  };
  const drawAll = (found) => {
    drawn = found;
    draw();
    drawCheapest(found);
    return table(found);
  };
  const load = loader(region, { draw: drawAll });

  const measure = async (peer, place, rule) => {
    try {
      const own = store.state.kind ? rule : ruleOf(store.state, peer);
      const point = await pointOf(peer, own);
      // Models without the rule of the slider have a point, but no line in this chart.
      return { model: peer, place, point, curve: own.kind === rule.kind && curvable(peer, own) ? await curveOf(peer, rule.kind) : null };
    } catch (error) {
      if (error.name !== "ServiceError" || !error.status) throw error;
      return { model: peer, place, wrong: error.message };
    }
  };

  let asked = "";
  return {
    update(state, shownModel) {
      model = shownModel;
      choose(plots, state.plot in PLOTS ? state.plot : "error");
      meaning.textContent = MEANINGS[model.task];
      const prices = costsOf(state);
      for (const [name, value] of [
        ["cost_label", prices.label],
        ["cost_miss", prices.miss],
      ]) {
        const input = costs.querySelector(`#${name}`);
        if (document.activeElement !== input) input.value = value;
      }
      const rule = ruleOf(state, model);
      const words = JSON.stringify([model.name, model.rule, state.kind, state.value]);
      if (words === asked && drawn) {
        draw();
        drawCheapest(drawn);
        region.replaceChildren(table(drawn));
        return;
      }
      asked = words;
      if (!model.held_out) {
        drawn = null;
        asked = "";
        root.classList.add("no-chart");
        chart.replaceChildren();
        legend.replaceChildren();
        cheapest.replaceChildren();
        load.clear(notice("empty", withoutRows(model)));
        return;
      }
      const shown = peers(model).filter((peer) => peer.held_out && (factsOf(peer, rule.kind) || !state.kind));
      load(async (signal) => {
        const found = shown.map((peer, place) => ({ model: peer, place, wrong: "being measured …" }));
        // The first answer for a rule takes the service seconds: each model is shown as soon as it is measured.
        await Promise.all(
          shown.map(async (peer, place) => {
            found[place] = await measure(peer, place, rule);
            if (!signal.aborted) region.replaceChildren(drawAll({ rule, found }));
          }),
        );
        return { rule, found };
      });
    },
  };
};
