// A field for names of labels that completes them: a combobox as the ARIA practices describe it.
import { count, make, nameOf } from "./elements.js";
import { ask, modelPath } from "./service.js";

const SUGGESTIONS = 8;
let made = 0;

/* The field; `onPick` gets each chosen name, `onErase` hears Backspace in the empty field, `leaveOut` names what is chosen. */
export const labelEntry = (model, { legend, placeholder, onPick, onErase = () => {}, leaveOut = () => [] }) => {
  made += 1;
  const id = `label-entry-${made}`;
  const list = make("ul", { id: `${id}-list`, role: "listbox", "aria-label": "Labels", class: "suggestions", hidden: true });
  const input = make("input", {
    id,
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    placeholder,
    "aria-expanded": "false",
    "aria-controls": list.id,
    "aria-autocomplete": "list",
  });
  const words = make("p", { class: "hidden-words", role: "status" });
  const wrong = make("p", { class: "wrong", role: "alert" });
  let found = [];
  let active = -1;
  let own = null;

  const close = () => {
    own?.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  };
  const pick = (name) => {
    input.value = "";
    close();
    onPick(name);
  };
  const mark = (place) => {
    active = place;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
    if (active >= 0) {
      input.setAttribute("aria-activedescendant", list.children[active].id);
      list.children[active].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  const draw = (labels) => {
    found = labels.map(({ label }) => label).filter((label) => !leaveOut().includes(label));
    list.replaceChildren(
      ...found.map((label, at) =>
        make(
          "li",
          {
            role: "option",
            id: `${id}-${at}`,
            "aria-selected": "false",
            onpointerdown: (event) => {
              event.preventDefault();
              pick(label);
            },
          },
          nameOf(label),
        ),
      ),
    );
    if (!found.length)
      list.replaceChildren(
        make("li", { class: "none", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "No label has this in its name."),
      );
    words.textContent = count(found.length, "suggestion");
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(found.length && input.value ? 0 : -1);
  };
  const search = async () => {
    own?.abort();
    const mine = (own = new AbortController());
    try {
      const { labels } = await ask(modelPath(model, "labels", { search: input.value.trim(), limit: SUGGESTIONS + leaveOut().length }), {
        signal: mine.signal,
      });
      if (mine.signal.aborted) return;
      wrong.textContent = "";
      draw(labels.slice(0, SUGGESTIONS + leaveOut().length));
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error.name !== "ServiceError") throw error;
      wrong.textContent = error.message;
    }
  };
  input.addEventListener("input", search);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) {
        search();
        return;
      }
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (found.length) mark((active + step + found.length) % found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (active >= 0 && found[active] !== undefined) pick(found[active]);
      // Without suggestions, the service says whether the name is one.
      else if (wrong.textContent && input.value.trim()) pick(input.value.trim());
    } else if (event.key === "Escape") close();
    else if (event.key === "Backspace" && input.value === "") onErase();
  });
  return {
    element: make(
      "div",
      { class: "label-entry" },
      make("label", { for: id }, legend),
      make("div", { class: "field-place" }, input, list),
      words,
      wrong,
    ),
    input,
  };
};
