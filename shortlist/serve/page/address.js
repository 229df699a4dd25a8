// The state of the page is its address: what follows `#` names the view and everything chosen in it. Browsers do not send
// this part, so that texts stay out of the service's logs.
const LONGEST = 16_000;

export const VIEWS = { try: "Try", rule: "Rule", rows: "Rows", labels: "Labels", audit: "Can it answer?" };

const read = () => {
  const [view, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  return { ...Object.fromEntries(new URLSearchParams(query)), view: view in VIEWS || view === "label" ? view : "try" };
};

/* The address of a state; values that are empty are left out. */
export const addressOf = ({ view, ...rest }) => {
  const entries = Object.entries(rest).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(entries.map(([key, value]) => [key, String(value)])).toString();
  return `#${view}${query ? `?${query}` : ""}`;
};

const KEPT = "kept in this tab";
const memory = new Map();
const placeOf = (key) => `shortlist ${key}`;

/* A value as the state holds it: one that is too long for a link stays in this tab, also when it is loaded again. */
export const keep = (key, value) => {
  if (encodeURIComponent(value).length <= LONGEST) return value;
  memory.set(key, value);
  try {
    sessionStorage.setItem(placeOf(key), value);
  } catch {
    sessionStorage.removeItem(placeOf(key));
  }
  return KEPT;
};
export const isKept = (value) => value === KEPT;
/* The value itself; undefined where a link was opened in another tab. */
export const kept = (key, value) => (isKept(value) ? (memory.get(key) ?? sessionStorage.getItem(placeOf(key)) ?? undefined) : value);

/* Holds the state: `set` changes it and the address, `change` runs after every change, also by the browser's Back. */
export const addressStore = (change) => {
  const store = {
    state: read(),
    set(changes, { step = false } = {}) {
      store.state = Object.fromEntries(
        Object.entries({ ...store.state, ...changes }).filter(([, value]) => value !== undefined && value !== ""),
      );
      try {
        history[step ? "pushState" : "replaceState"](null, "", addressOf(store.state));
      } catch {
        // Some browsers refuse many changes in a short time; the next one brings the address up to date.
      }
      change(store.state);
    },
    href: (changes) => addressOf({ ...store.state, ...changes }),
  };
  // Links within the page change the part after `#`, as do Back and Forward.
  addEventListener("popstate", () => {
    store.state = read();
    change(store.state);
  });
  return store;
};
