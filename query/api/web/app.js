// The shell: which view an address shows, how old its facts are, keys, theme. A view is a module that exports
// open(root, route, shell) and returns {refresh, every, close}: refresh asks again and draws, every is how often.
import { box, h, keep, kept, put, withCode } from "./dom.js";
import { Gone, Refusal } from "./api.js";
import { plural, span } from "./words.js";

const views = [
  [/^\/racks$/, () => import("./racks.js")],
  [/^\/spills$/, () => import("./spills.js")],
  [/^\/exceptions$/, () => import("./exceptions.js")],
  [/^\/jobs\/([^/]+)$/, () => import("./job.js")],
  [/^\/domains\/([^/]+)$/, () => import("./domain.js")],
  [/^\/slots$/, () => import("./slots.js")],
  [/^\/advice$/, () => import("./advice.js")],
  [/^\/topology$/, () => import("./topology.js")],
  [/^\/report$/, () => import("./report.js")],
  [/^\/status$/, () => import("./status.js")],
];

const main = document.getElementById("main");
const freshness = document.getElementById("freshness");
const announcer = document.getElementById("announce");

// Facts older than this are called stale: collectors report at least every ten seconds.
const staleAfter = 120;

let shown = null; // the open view
let turn = 0; // an answer that comes after its view was left is dropped
let lastGood = null;
let lastKind = "";

function say(kind, word, text) {
  put(freshness, Object.assign(document.createElement("strong"), { textContent: word }), " ", withCode(text));
  freshness.className = `freshness ${kind}`;
  if (kind !== lastKind && lastKind !== "") announce(`${word} ${text}`);
  lastKind = kind;
}

function announce(text) {
  announcer.textContent = text;
}

// facts says how old and complete an answer is.
function facts(answer) {
  lastGood = new Date();
  const f = answer.freshness;
  if (!f) return say("plain", "", "");
  const gaps = f.gaps.length ? `${f.gaps[0]}${f.gaps.length > 1 ? `, and ${plural(f.gaps.length - 1, "more gap")}` : ""}.` : "";
  if (f.age_seconds === null) return say("unknown", "Age unknown:", gaps || "no source has been read in full yet.");
  if (f.age_seconds > staleAfter) return say("stale", "Stale:", `facts are ${span(f.age_seconds)} old. ${gaps}`);
  if (!f.complete) return say("stale", "Incomplete:", `facts are ${span(f.age_seconds)} old, but ${gaps}`);
  say("fresh", "Fresh:", `facts are ${span(f.age_seconds)} old and complete.`);
}

// failed says what went wrong; what is on the screen stays, as long as it is said to be old.
function failed(error, root) {
  const since = lastGood ? `What you see is from ${lastGood.toISOString().slice(11, 19)}Z.` : "";
  if (error instanceof Refusal) {
    if (root.dataset.state !== "drawn") {
      put(root, refusal(error));
      root.dataset.state = "refused";
      if (error.status < 500) return say("plain", "", "Spillway answers.");
    }
    return say("stale", "No answer:", `${error.message}. ${since}`);
  }
  say("stale", "No connection:", `Spillway does not answer at ${location.host}. ${since}`);
  if (root.dataset.state !== "drawn") {
    put(root, heading("No connection"), box("wrong", "Spillway does not answer.", "See that `spillway up` or `serve` still runs; this page asks again by itself."));
    root.dataset.state = "refused";
  }
  return undefined;
}

function heading(text) {
  return Object.assign(document.createElement("h1"), { textContent: text });
}

function refusal(error) {
  const words = {
    404: ["Not found", "unknown"], 409: ["Which one?", "unknown"], 401: ["No token", "wrong"], 422: ["Cannot ask that", "wrong"],
    503: ["Spillway is up, but its store does not answer", "wrong"], 504: ["It took too long", "wrong"],
  }[error.status] || [`Refused (${error.status})`, "wrong"];
  return [heading(words[0]), box(words[1], words[0], error.message, "."), error.status === 409 ? askCluster() : null,
    error.status === 404 ? h("p", null, h("a", { href: "/spills" }, "Spills of the last day"), " or ", h("a", { href: "/racks" }, "who holds what now")) : null];
}

// askCluster lets the reader say which cluster's job of that name is meant.
function askCluster() {
  const input = h("input", { required: true, autocomplete: "off", spellcheck: "false" });
  return h("form", { class: "controls", onsubmit: (e) => {
    e.preventDefault();
    const q = new URLSearchParams(location.search);
    q.set("cluster", input.value.trim());
    go(`${location.pathname}?${q}`);
  } }, h("label", { class: "field" }, h("span", null, "Cluster"), input), h("button", { type: "submit", class: "primary" }, "Open"));
}

async function show() {
  const mine = ++turn;
  shown?.close?.();
  clearTimeout(shown?.timer);
  if (location.pathname === "/") history.replaceState(null, "", `/racks${location.search}`);
  const path = location.pathname;
  const match = views.map(([pattern, load]) => [path.match(pattern), load]).find(([m]) => m);
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.pathname === path ||
      (path.startsWith("/domains/") && link.pathname === "/racks") || (path.startsWith("/jobs/") && link.pathname === "/spills");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const root = document.createElement("div");
  root.className = "view";
  put(main, root);
  if (!match) {
    put(root, heading("No such page"), box("unknown", "No such page.", "The views are in the bar above."));
    return;
  }
  const route = { name: match[0][1] ? decodeURIComponent(match[0][1]) : "", query: new URLSearchParams(location.search) };
  const module = await match[1]();
  if (mine !== turn) return;
  const shell = { go, title, announce, facts, replace: (query) => replaceQuery(query), again: () => view.wake() };
  const view = module.open(root, route, shell);
  view.wake = () => tick(view, root, mine);
  shown = view;
  await tick(view, root, mine);
}

// tick draws the view and asks again after a while, but not in a tab nobody looks at.
async function tick(view, root, mine) {
  clearTimeout(view.timer);
  if (!document.hidden || root.dataset.state !== "drawn") {
    try {
      const answer = await view.refresh();
      if (mine !== turn) return;
      if (root.dataset.state === "refused") return show(); // what it drew into was taken off for the refusal
      root.dataset.state = "drawn";
      if (answer) facts(answer);
    } catch (error) {
      if (mine !== turn || error.name === "AbortError") return;
      if (!(error instanceof Refusal) && !(error instanceof Gone)) throw error;
      failed(error, root);
    }
  }
  if (view.every) view.timer = setTimeout(() => tick(view, root, mine), view.every);
}

function title(text) {
  document.title = text ? `${text} · Spillway` : "Spillway";
}

function go(href) {
  history.pushState(null, "", href);
  main.focus({ preventScroll: true }); // at once: whoever types next must not lose the field to it
  show();
  scrollTo(0, 0);
}

function replaceQuery(query) {
  const q = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== "" && value !== null && value !== undefined) q.set(key, value);
  const text = q.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || url.hash || link.target || url.pathname.startsWith("/v1/") || url.pathname === "/metrics") return;
  event.preventDefault();
  go(url.pathname + url.search);
});

window.addEventListener("popstate", show);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && shown?.every) shown.wake?.();
});

document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const job = document.getElementById("find-job").value.trim();
  if (job) go(`/jobs/${encodeURIComponent(job)}`);
});

const themes = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme-toggle");

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
  keep("spillway-theme", theme);
  document.dispatchEvent(new Event("themechange"));
}

themeButton.addEventListener("click", () => {
  setTheme(themes[(themes.indexOf(kept("spillway-theme", "auto")) + 1) % themes.length]);
});
setTheme(themes.includes(kept("spillway-theme", "auto")) ? kept("spillway-theme", "auto") : "auto");

const keysDialog = document.getElementById("keys");
document.getElementById("keys-open").addEventListener("click", () => keysDialog.showModal());

const jumps = { r: "/racks", s: "/spills", e: "/exceptions", l: "/slots", a: "/advice", w: "/report", t: "/topology", p: "/status" };
let jumping = 0; // when g was pressed

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, dialog") || event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find-job").focus();
  } else if (event.key === "?") {
    keysDialog.showModal();
  } else if (event.key === "g") {
    jumping = Date.now();
  } else if (jumps[event.key] && Date.now() - jumping < 1500) {
    jumping = 0;
    go(jumps[event.key]);
  }
});

show();
