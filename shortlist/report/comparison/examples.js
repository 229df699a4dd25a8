"use strict";
// Examples: the set of every answer at one K, and filters. `exampleList` is used by page.js.
const FIRST_EXAMPLES = 4;
const RARE = 20;  // Training rows, as in the literature's few-shot group.
const ABOUT = {
  all: "", missed: "Some candidate misses a true label.", disagreeing: "Some candidates find all true labels, others do not.",
  empty: "Some answer has no label.", huge: "Some answer has more than twice K labels.",
  rare: `A true label has fewer than ${RARE} training rows.`,
};

const exampleList = (section, ks) => {
  const cards = [...section.querySelectorAll(".card")].map((element) => ({
    element,
    truth: [...element.querySelectorAll(".chip.true bdi")].map((name) => name.textContent),
    rarest: element.dataset.rarest === undefined ? Infinity : Number(element.dataset.rarest),
    answers: [...element.querySelectorAll(".answer")].map((answer) => ({
      element: answer,
      sizes: answer.dataset.sizes.split(" ").map(Number),
      listed: Number(answer.dataset.listed),
      chips: [...answer.querySelectorAll(".labels > li")],
      missed: [...answer.querySelectorAll(".missed")],
    })),
  }));
  const more = section.querySelector(".more-rows");
  const search = section.querySelector("[data-label]");
  const filters = [...section.querySelectorAll("[data-filter]")];
  const state = { kIndex: 0, shown: FIRST_EXAMPLES };

  // Shows the set of an answer; returns whether it is known to miss a true label.
  const update = ({ element, sizes, listed, chips, missed }) => {
    const size = sizes[state.kIndex];
    chips.forEach((chip, rank) => { chip.hidden = rank >= size; });
    element.querySelector(".size").textContent = size === 0 ? "no label" : size === 1 ? "1 label" : `${size} labels`;
    const rest = element.querySelector(".more");
    rest.hidden = size <= chips.length;
    rest.textContent = `and ${size - chips.length} more that are not listed`;
    for (const chip of missed) {
      const rank = Number(chip.dataset.rank);
      // Labels beyond the listed ones are not known to be missed.
      chip.hidden = rank >= 0 ? rank < size : size > listed;
    }
    const misses = missed.some((chip) => !chip.hidden);
    element.querySelector(".misses").hidden = !misses;
    return misses;
  };
  const KINDS = {
    all: () => true,
    missed: ({ misses }) => misses.some(Boolean),
    disagreeing: ({ misses }) => misses.some(Boolean) && !misses.every(Boolean),
    empty: ({ sizes }) => sizes.includes(0),
    huge: ({ sizes }) => Math.max(...sizes) > 2 * ks[state.kIndex],
    rare: ({ card }) => card.rarest < RARE,
  };
  const hasLabel = (card, wanted) => {
    const names = card.truth.concat(card.answers.flatMap(({ chips }) => chips.filter((chip) => !chip.hidden).map((chip) => chip.querySelector("bdi").textContent)));
    return names.some((name) => name.toLowerCase().includes(wanted));
  };
  const show = () => {
    const facts = cards.map((card) => ({ card, misses: card.answers.map(update), sizes: card.answers.map(({ sizes }) => sizes[state.kIndex]) }));
    const chosen = filters.find((filter) => filter.checked).value;
    const wanted = search.value.trim().toLowerCase();
    for (const filter of filters) {
      const count = facts.filter(KINDS[filter.value]).length;
      filter.nextElementSibling.textContent = `${filter.value} ${count}`;
      filter.disabled = count === 0 && !filter.checked;
    }
    const fitting = facts.filter((each) => KINDS[chosen](each) && (!wanted || hasLabel(each.card, wanted))).map(({ card }) => card);
    for (const card of cards) card.element.hidden = !fitting.slice(0, state.shown).includes(card);
    more.hidden = fitting.length <= state.shown;
    section.querySelector(".filter-about").textContent = `${Math.min(state.shown, fitting.length)} of ${fitting.length} examples. ${ABOUT[chosen]}`;
  };
  const restart = () => { state.shown = FIRST_EXAMPLES; show(); };
  filters.forEach((filter) => filter.addEventListener("change", restart));
  search.addEventListener("input", restart);
  more.addEventListener("click", () => { state.shown = Infinity; show(); });
  return {
    setK(kIndex) { state.kIndex = kIndex; show(); },
    countOf(label) { return cards.filter((card) => card.truth.includes(label)).length; },
    showLabel(label) {
      filters[0].checked = true;
      search.value = label;
      restart();
      section.scrollIntoView();
      search.focus({ preventScroll: true });
    },
    showAll() { state.shown = Infinity; show(); },
  };
};
