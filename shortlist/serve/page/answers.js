// Rows and the sets that models answer with: inputs, true labels, and bars of scores.
import { button, count, make, nameOf, scoreWriter } from "./elements.js";

const SHOWN = 12;
const FEATURES_SHOWN = 160;

/* An input as people read it. */
export const inputPicture = (input) => {
  if (input.kind === "text") return make("p", { class: "text" }, input.text);
  if (input.kind === "image")
    return make("img", { class: "picture", src: `data:image/png;base64,${input.png}`, alt: "The image of this row" });
  return featureBars(input.values);
};

const SVG = "http://www.w3.org/2000/svg";
const featureBars = (values) => {
  const shown = values.slice(0, FEATURES_SHOWN);
  const numbers = shown.map(Number);
  if (numbers.some(Number.isNaN)) return make("p", { class: "text" }, shown.join(", "));
  const highest = Math.max(...numbers.map(Math.abs)) || 1;
  const path = numbers.map((value, at) => `M${at + 0.5} 0V${((-20 * value) / highest).toFixed(2)}`).join("");
  const picture = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({
    viewBox: `0 -20 ${numbers.length} 40`,
    preserveAspectRatio: "none",
    role: "img",
    class: "feature-bars",
    "aria-label": `${count(values.length, "feature")}, as bars`,
  }))
    picture.setAttribute(key, value);
  const bars = document.createElementNS(SVG, "path");
  bars.setAttribute("d", path);
  picture.append(bars);
  const more = values.length > shown.length ? `, the first ${shown.length} shown` : "";
  return make("div", {}, picture, make("p", { class: "note" }, `${count(values.length, "feature")}${more}`));
};

const chip = (name, kind, mark = "") => make("li", {}, make("span", { class: `chip ${kind}` }, mark, nameOf(name)));

/* Names as chips; `kindOf` gives the class of each: "hit", "missed" or "". */
export const chips = (names, kindOf = () => "", most = 24) => {
  const list = make(
    "ul",
    { class: "chips" },
    names.slice(0, most).map((name) => chip(name, kindOf(name))),
  );
  if (names.length > most) {
    const more = make(
      "li",
      {},
      button(
        { class: "link", onclick: () => list.replaceWith(chips(names, kindOf, Infinity)) },
        `${count(names.length - most, "more label")}`,
      ),
    );
    list.append(more);
  }
  return list;
};

export const trueLabels = (names, words = "True labels") =>
  make(
    "div",
    { class: "truth" },
    make("h3", {}, words),
    names.length ? chips(names, () => "true") : make("p", { class: "note" }, "This row has no label."),
  );

/* One answer: the labels with the highest scores as bars, those of the set strong, those outside pale. */
export const answerBars = ({ labels, scores, top }, truth) => {
  const inSet = new Map(labels.map((label, at) => [label, scores[at]]));
  const entries = [
    ...labels.map((label, at) => ({ label, score: scores[at], held: true })),
    ...top.filter(({ label }) => !inSet.has(label)).map(({ label, score }) => ({ label, score, held: false })),
  ];
  entries.sort((a, b) => b.score - a.score);
  const highest = Math.max(...entries.map(({ score }) => score));
  const lowest = Math.min(0, ...entries.map(({ score }) => score));
  const known = truth && new Set(truth);
  const words = scoreWriter(highest);
  const row = ({ label, score, held }) => {
    const bar = make("span", { class: "bar" }, make("span", {}));
    bar.firstElementChild.style.width = `${highest === lowest ? 100 : Math.max(1, (100 * (score - lowest)) / (highest - lowest))}%`;
    const right = known?.has(label);
    return make(
      "li",
      { class: `${held ? "held" : "left-out"}${right ? " right" : ""}` },
      make(
        "span",
        { class: "label", title: label },
        nameOf(label),
        right ? make("span", { class: "mark" }, held ? " true" : " missed") : "",
        make("span", { class: "hidden-words" }, held ? ", in the set" : ", not in the set"),
      ),
      bar,
      make("span", { class: "score" }, words(score)),
    );
  };
  const list = make("ol", { class: "score-bars" }, entries.slice(0, SHOWN).map(row));
  if (entries.length <= SHOWN) return list;
  const more = button(
    {
      class: "link",
      onclick: () => {
        list.append(...entries.slice(SHOWN).map(row));
        more.remove();
      },
    },
    `Show ${count(entries.length - SHOWN, "more label")}`,
  );
  return make("div", {}, list, more);
};

/* The words under a model's name: how many labels, and whether a true one is missing. */
export const answerSummary = (labels, truth) => {
  const size = labels.length ? count(labels.length, "label") : "empty set";
  if (!truth?.length) return size;
  const missed = truth.filter((label) => !labels.includes(label)).length;
  if (truth.length === 1) return `${size}, true label ${missed ? "missed" : "found"}`;
  return `${size}, ${missed ? `${missed} of ${truth.length} true labels missed` : "all true labels found"}`;
};

/* A held-out row with the sets of all models, for lists of rows. */
export const rowCard = (row, names, { rowHref, auditHref }) =>
  make(
    "article",
    { class: "card" },
    make(
      "div",
      {},
      make("h3", {}, make("a", { href: rowHref(row.row) }, `Row ${row.row}`)),
      inputPicture(row.input),
      trueLabels(row.true),
      make("p", { class: "note" }, make("a", { href: auditHref(row.row) }, "Can the layer answer this set?")),
    ),
    make(
      "div",
      { class: "answers" },
      names
        .filter((name) => row.answers[name])
        .map((name) => {
          const { labels, missed } = row.answers[name];
          const truth = new Set(row.true);
          return make(
            "section",
            { class: "answer" },
            make("h4", {}, nameOf(name)),
            make("p", { class: "sides" }, answerSummary(labels, row.true)),
            labels.length ? chips(labels, (label) => (truth.has(label) ? "hit" : "")) : null,
            missed.length
              ? make(
                  "div",
                  { class: "misses" },
                  make("p", { class: "sides" }, "missed"),
                  chips(missed, () => "missed"),
                )
              : null,
          );
        }),
    ),
  );
