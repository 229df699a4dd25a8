// Makes elements. Everything that users, models or the service say enters the page as text, never as markup.

/* An element with attributes: `on...` are listeners, true and false set or leave out; children are elements or texts. */
export const make = (tag, facts = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(facts)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
};

/* The name of a label or model; names may be in any script, and in any direction. */
export const nameOf = (name) => make("bdi", {}, name);
export const button = (facts, ...children) => make("button", { type: "button", class: "button", ...facts }, ...children);

/* Buttons of which one is chosen: `entries` are [value, words]. */
export const choice = (legend, name, entries, chosen, onChange) =>
  make(
    "fieldset",
    { class: "choice" },
    make("legend", {}, legend),
    entries.map(([value, words]) =>
      make(
        "label",
        {},
        make("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onChange(value) }),
        make("span", {}, words),
      ),
    ),
  );
export const choose = (fieldset, value) => {
  for (const input of fieldset.querySelectorAll("input")) input.checked = input.value === value;
};

const number = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
export const percentWords = (value, digits = 1) => (known(value) ? `${number(100 * value, digits)}%` : "–");
export const decimalWords = (value, digits = 2) => (known(value) ? number(value, value >= 1000 ? 0 : digits) : "–");
export const count = (value, one, many = `${one}s`) => `${number(value, 0)} ${value === 1 ? one : many}`;
/* Scores of one answer in words, with as many digits as the highest one needs. */
export const scoreWriter = (highest) => {
  const digits = Math.min(8, Math.max(3, 2 - Math.floor(Math.log10(Math.abs(highest) || 1))));
  const least = 10 ** -digits;
  return (score) => (score > 0 && score < least / 2 ? `<${number(least, digits)}` : number(score, digits));
};

/* A message where content would be: `kind` is "empty", "loading" or "error". */
export const notice = (kind, words, ...more) =>
  make("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status" }, make("p", {}, words), ...more);

const LATE = 250;
const SLOW = 2500;
const PAUSE = 120;

/* Fills a region with what the service says: the latest question wins, earlier content stays until the answer is there. */
export const loader = (region, { draw, onState = () => {}, slow = "" }) => {
  let own = null;
  let begun = -Infinity;
  const fill = (...content) => {
    region.replaceChildren(...content);
    region.classList.remove("waiting");
    region.setAttribute("aria-busy", "false");
  };
  const load = async (work) => {
    own?.abort();
    const mine = (own = new AbortController());
    // Also an answer for a view that is no longer shown comes too late.
    const isLate = () => mine.signal.aborted || !region.isConnected;
    // A slider asks many times a second; the first question of a row goes at once.
    const pause = performance.now() - begun < 400 ? PAUSE : 0;
    begun = performance.now();
    region.setAttribute("aria-busy", "true");
    const late = [
      setTimeout(() => {
        if (region.childElementCount) region.classList.add("waiting");
        else region.replaceChildren(notice("loading", "Loading …"));
      }, LATE),
      setTimeout(() => {
        if (slow && region.querySelector(".loading")) region.replaceChildren(notice("loading", slow));
      }, SLOW),
    ];
    try {
      if (pause) await new Promise((done) => setTimeout(done, pause));
      if (isLate()) return;
      const found = await work(mine.signal);
      if (isLate()) return;
      fill(...[draw(found)].flat());
      onState("done");
    } catch (error) {
      if (isLate()) return;
      if (error.name !== "ServiceError") throw error;
      fill(
        notice(
          "error",
          error.message,
          button(
            {
              onclick: () => {
                load(work);
              },
            },
            "Try again",
          ),
        ),
      );
      onState("error");
    } finally {
      late.forEach(clearTimeout);
    }
  };
  load.clear = (...content) => {
    own?.abort();
    fill(...content);
  };
  return load;
};

/* A button that copies the text of `code`; where the clipboard is closed, it selects the text. */
export const copyButton = (code, what) => {
  const made = button({ class: "button copy", "aria-label": `Copy the ${what}` }, "Copy");
  made.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      made.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      made.textContent = "Selected";
    }
    setTimeout(() => {
      made.textContent = "Copy";
    }, 2000);
  });
  return made;
};
