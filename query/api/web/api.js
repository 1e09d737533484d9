// Questions to Spillway's own API. A refusal becomes a Refusal with the problem's words; 401 asks for the token.

// wrong says what is wrong with which parameter, where the problem tells.
const wrong = (problem) => (problem.errors ?? []).map((e) => [e.location, e.message].filter(Boolean).join(": ")).join("; ");

export class Refusal extends Error {
  constructor(status, problem) {
    super([problem.detail || problem.title || `Spillway answered ${status}`, wrong(problem)].filter(Boolean).join(": "));
    this.status = status;
    this.problem = problem;
  }
}

// Gone says that nobody answered at all.
export class Gone extends Error {}

const tokenKey = "spillway-token";
let held = null; // where storage is off, the token lasts as long as the page

function token() {
  try {
    return sessionStorage.getItem(tokenKey) ?? held;
  } catch {
    return held;
  }
}

function setToken(value) {
  held = value;
  try {
    sessionStorage.setItem(tokenKey, value);
  } catch {
    // held keeps it.
  }
}

let asking = null; // several calls may be refused at once: one dialog serves them all

function askToken(refused) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token-dialog");
    const input = document.getElementById("token");
    document.getElementById("token-wrong").hidden = !refused;
    input.value = "";
    dialog.addEventListener("close", () => {
      asking = null;
      if (input.value) setToken(input.value.trim());
      resolve();
    }, { once: true });
    dialog.showModal();
    input.focus();
  });
  return asking;
}

// reach tells a service that is gone from a fault of this page: fetch throws a TypeError for both.
async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Gone("Spillway does not answer", { cause: error });
  }
}

async function call(path, options, signal) {
  for (let tries = 0; ; tries++) {
    const used = token();
    const headers = { ...options.headers };
    if (used) headers.Authorization = `Bearer ${used}`;
    const response = await reach(path, { ...options, headers, signal, cache: "no-store" });
    if (response.status === 401 && tries < 3) {
      if (token() === used) await askToken(Boolean(used));
      continue;
    }
    if (response.ok) return response.json();
    let problem = {};
    try {
      problem = await response.json();
    } catch {
      // Not one of ours, for example a proxy's page: the status has to do.
    }
    throw new Refusal(response.status, problem);
  }
}

function query(params) {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) {
    if (value !== undefined && value !== null && value !== "") q.set(key, value);
  }
  const text = q.toString();
  return text ? `?${text}` : "";
}

// get asks GET /v1/... ; parts of the path that are names must go through encodeURIComponent.
export const get = (path, params, signal) => call(path + query(params), {}, signal);

export const post = (path, body, signal) => call(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
}, signal);
