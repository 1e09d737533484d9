// Elements from code. Text always goes in as text, so that no name from a cluster can become markup.

const svgSpace = "http://www.w3.org/2000/svg";

function fill(el, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") el[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

// h makes an HTML element: h("a", {href: "/spills"}, "Spills").
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

// s makes an SVG element.
export const s = (tag, props, ...children) => fill(document.createElementNS(svgSpace, tag), props, children);

// put replaces what an element holds.
export const put = (el, ...children) => el.replaceChildren(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));

// withCode shows the `commands` that a line of text carries as code.
export const withCode = (line) => line.split("`").map((part, i) => (i % 2 ? h("code", null, part) : part));

// box says in words which state a view or a part of it is in: empty, unknown, stale, wrong or loading.
export function box(kind, title, ...text) {
  return h("div", { class: `box ${kind}` }, h("strong", null, title), h("div", null, text.flat(2).map((t) => (typeof t === "string" ? withCode(t) : t))));
}

// table makes a table that scrolls in itself on narrow screens. Columns are {head, cell(row), number}.
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null,
      h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map((c) => h("th", { scope: "col", class: c.number ? "number" : null }, c.head)))),
      h("tbody", null, rows.map((row) => h("tr", null, columns.map((c) => h("td", { class: c.number ? "number" : null }, c.cell(row))))))));
}

// copyable is a line to paste elsewhere, with a button that copies it.
export function copyable(text, what) {
  const button = h("button", {
    type: "button", "aria-label": `Copy ${what}`,
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy by hand";
      }
    },
  }, "Copy");
  return h("div", { class: "copy" }, h("code", null, text), button);
}

// keep remembers a choice of this browser; without storage it lasts as long as the page.
export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Nothing to do: the choice holds until the page is left.
  }
}

export function kept(key, otherwise) {
  try {
    return localStorage.getItem(key) ?? otherwise;
  } catch {
    return otherwise;
  }
}
