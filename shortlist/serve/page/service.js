// Questions to the service, with its token, and its refusals as one sentence.
const TRIES = 3;
const LONGEST_WAIT = 5;
const TOKEN = "shortlist token";

export class ServiceError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "ServiceError";
    this.status = status;
  }
}

const STOPPED = "The service does not answer. Is `shortlist serve` still running?";
const REFUSALS = {
  403: "The service refuses this page's address.",
  404: "The service does not know that.",
  408: "The service took too long.",
  413: "That is too large for this service.",
  429: "The service is busy.",
  504: "The service took too long.",
};

const sentenceOf = async (answer) => {
  try {
    const { error } = await answer.json();
    if (typeof error === "string" && error) return error;
  } catch {
    /* Not JSON: a proxy's page, for example. */
  }
  return REFUSALS[answer.status] || `The service answered with status ${answer.status}.`;
};

let asking = null;

/* Asks the user for the token; questions that wait for it share one dialog. */
const askToken = (wrong) => {
  asking ||= new Promise((done) => {
    const dialog = document.getElementById("token");
    const input = dialog.querySelector("input");
    dialog.querySelector(".wrong").textContent = wrong ? "The service refuses this token." : "";
    input.value = "";
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.querySelector("form").onsubmit = () => {
      sessionStorage.setItem(TOKEN, input.value.trim());
      asking = null;
      done();
    };
    dialog.showModal();
  });
  return asking;
};

const pause = (seconds, signal) =>
  new Promise((done, fail) => {
    const wait = setTimeout(done, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(wait);
      fail(signal.reason);
    });
  });

const send = async (path, { body, signal }) => {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  try {
    return { token, answer: await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) }) };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError(STOPPED, 0);
  }
};

/* The service's answer to GET, or to POST if there is a body. Waits where a full queue says for how long.

Throws a ServiceError with one sentence, or the AbortError of `signal`. */
export const ask = async (path, { body, signal } = {}) => {
  for (let tried = 1; ; tried += 1) {
    const { token, answer } = await send(path, { body, signal });
    if (answer.ok) return answer.json();
    if (answer.status === 401) {
      // Another question may have brought a token meanwhile.
      if (token === sessionStorage.getItem(TOKEN)) await askToken(Boolean(token));
      tried = 0;
      continue;
    }
    const wait = Number(answer.headers.get("Retry-After") ?? 1);
    if (answer.status !== 429 || tried >= TRIES || !(wait <= LONGEST_WAIT)) throw new ServiceError(await sentenceOf(answer), answer.status);
    await pause(wait, signal);
  }
};

/* A path with a query; values that are empty are left out. */
export const pathOf = (path, query = {}) => {
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return entries.length ? `${path}?${new URLSearchParams(entries)}` : path;
};
export const modelPath = (model, part, query) => pathOf(`/models/${encodeURIComponent(model.name)}/${part}`, query);
