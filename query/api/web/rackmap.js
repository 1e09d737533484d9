// The rack map: every GPU of a fleet on a canvas that draws what is in sight only, so that 100,000 GPUs scroll without
// stutter. It knows nothing of the API but the shape of GET /v1/map.
import { h } from "./dom.js";
import { category, kinds, tile } from "./palette.js";
import { outcomeOf } from "./words.js";

// readMap prepares an answer of /v1/map: who holds a node, and in which domains a job sits.
export function readMap(map) {
  const nodes = map.nodes.name.length;
  const domains = map.domains.domain.length;
  const start = new Int32Array(nodes + 1); // holdings of node n are order[start[n]] up to order[start[n + 1]]
  for (const n of map.held.node) start[n + 1]++;
  for (let n = 0; n < nodes; n++) start[n + 1] += start[n];
  const next = start.slice(0, nodes);
  const order = new Int32Array(map.held.node.length);
  map.held.node.forEach((n, i) => { order[next[n]++] = i; });

  const domainOf = new Int32Array(nodes);
  for (let d = 0; d < domains; d++) domainOf.fill(d, map.domains.first_node[d], map.domains.first_node[d + 1]);
  const shards = map.jobs.map(() => new Map()); // by domain: GPUs there, null = not known
  map.held.node.forEach((n, i) => {
    const mine = shards[map.held.job[i]];
    const gpus = map.held.gpus[i];
    const before = mine.has(domainOf[n]) ? mine.get(domainOf[n]) : 0;
    mine.set(domainOf[n], before === null || gpus === null ? null : before + gpus);
  });

  let columns = 1;
  for (const p of map.nodes.gpus_present) if (p > columns) columns = p;
  if (columns === 1 && map.nodes.gpus_present.every((p) => p === null)) columns = 4;
  const names = map.domains.domain.map((id, d) => (id === "" ? "domain not known" : map.domains.label[d] ?? id));
  const m = { map, nodes, domains, start, order, domainOf, shards, columns: Math.min(columns, 16), names };
  m.totals = names.map((_, d) => count(m, d));
  return m;
}

// count sums up one domain. GPUs whose state nobody told are lost, and neither free nor down.
function count(m, d) {
  const t = { gpus: 0, held: 0, free: 0, down: 0, lost: 0, nodes: 0, nodesDown: 0, jobs: new Set() };
  for (let n = m.map.domains.first_node[d]; n < m.map.domains.first_node[d + 1]; n++) {
    t.nodes++;
    for (const part of parts(m, n)) {
      t.gpus += part.gpus;
      if (part.job >= 0) {
        t.held += part.gpus;
        t.jobs.add(part.job);
      } else t[part.kind] += part.gpus;
    }
    if (m.map.nodes.gpus_usable[n] === 0) t.nodesDown++;
  }
  return t;
}

// parts are the GPUs of a node from left to right: who holds them, then what is down, free or lost.
function parts(m, n) {
  const { map } = m;
  const out = [];
  const present = map.nodes.gpus_present[n];
  const usable = map.nodes.gpus_usable[n];
  let left = present ?? m.columns;
  for (let i = m.start[n]; i < m.start[n + 1] && left > 0; i++) {
    const gpus = Math.min(left, map.held.gpus[m.order[i]] ?? left);
    if (gpus > 0) out.push({ gpus, job: map.held.job[m.order[i]], kind: "held" });
    left -= gpus;
  }
  if (usable === null || present === null) {
    if (left > 0) out.push({ gpus: left, job: -1, kind: "lost" });
    return out;
  }
  const down = Math.min(left, present - usable);
  if (left > down) out.push({ gpus: left - down, job: -1, kind: "free" });
  if (down > 0) out.push({ gpus: down, job: -1, kind: "down" });
  return out;
}

// colouring gives each job its style and the legend, by what the reader wants to see.
export function colouring(m, mode) {
  const { jobs } = m.map;
  if (mode === "verdict" || mode === "health") {
    const used = new Set();
    const ofJob = jobs.map((j) => {
      let kind = mode === "health" ? "ok" : j.probe ? "probe" : outcomeOf(j.outcome).kind;
      if (kind === "spill" && j.cause) kind = `spill ${j.cause}`;
      used.add(kind);
      return kinds[kind];
    });
    const list = Object.keys(kinds).filter((k) => used.has(k)).sort((a, b) => b.startsWith("spill") - a.startsWith("spill"));
    const legend = list.map((k) => ({ style: kinds[k], text: mode === "health" ? "held, in service" : kinds[k].word }));
    return { ofJob, legend };
  }
  const key = {
    job: (j) => `${j.job_id}${j.name ? ` ${j.name}` : ""}`, tenant: (j) => j.account || "account not known",
    class: (j) => j.service_class || "class not known", queue: (j) => j.queue || "queue not known",
  }[mode];
  const gpus = new Map();
  jobs.forEach((j) => gpus.set(key(j), (gpus.get(key(j)) ?? 0) + (j.gpus ?? 0)));
  const ranked = [...gpus.keys()].sort((a, b) => gpus.get(b) - gpus.get(a) || (a < b ? -1 : 1));
  const style = new Map(ranked.map((name, i) => [name, category(i)]));
  return {
    ofJob: jobs.map((j) => style.get(key(j))),
    legend: ranked.slice(0, 12).map((name) => ({ style: style.get(name), text: name, gpus: gpus.get(name) })),
    more: Math.max(0, ranked.length - 12),
  };
}

// worst are the jobs whose spill is drawn when none is selected; more lines than that say nothing.
export function worst(m) {
  const most = 25;
  const { jobs } = m.map;
  const spilled = [];
  jobs.forEach((j, i) => { if (j.outcome === "spill" && !j.probe) spilled.push(i); });
  const excess = (i) => (jobs[i].domains_used ?? 0) - (jobs[i].domains_min ?? 0);
  return spilled.sort((a, b) => excess(b) - excess(a) || (jobs[b].gpus ?? 0) - (jobs[a].gpus ?? 0)).slice(0, most);
}

const cells = { small: 3, medium: 7, large: 14 }; // pixels a GPU takes
const rowsMost = 18; // a taller domain goes on in a second column

export class RackMap {
  constructor({ onPick, onHover }) {
    this.canvas = h("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "rack map", "aria-label": "Rack map", "aria-describedby": "map-help",
    });
    this.spacer = h("div", { class: "map-spacer" }, this.canvas);
    this.tip = h("div", { class: "tip", hidden: true });
    this.box = h("div", { class: "map" }, this.spacer);
    this.element = h("div", { class: "map-frame" }, this.box, this.tip);
    this.onPick = onPick;
    this.onHover = onHover;
    this.cursor = -1;
    this.selected = { job: -1, domain: -1 };
    this.tiles = new Map();
    this.box.addEventListener("scroll", () => this.later(), { passive: true });
    this.canvas.addEventListener("pointermove", (e) => this.hover(e));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (e) => this.pick(e));
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.canvas.addEventListener("focus", () => {
      if (this.cursor < 0) this.cursor = 0;
      this.tell();
      this.later();
    });
    this.canvas.addEventListener("blur", () => this.later());
    this.sizes = new ResizeObserver(() => {
      if (this.m) this.layout();
    });
    this.sizes.observe(this.box);
    this.themed = () => {
      this.tiles.clear();
      this.later();
    };
    document.addEventListener("themechange", this.themed);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", this.themed);
  }

  close() {
    this.sizes.disconnect();
    document.removeEventListener("themechange", this.themed);
    this.dark.removeEventListener("change", this.themed);
  }

  // show draws a map in a colouring. zoom is auto, small, medium or large.
  show(m, colours, zoom, lines) {
    this.m = m;
    this.colours = colours;
    const before = this.zoom;
    this.zoom = zoom === "auto" ? (m.domains <= 40 ? "large" : m.domains <= 250 ? "medium" : "small") : zoom;
    if (before !== this.zoom) this.tiles.clear();
    this.lines = lines;
    this.cursor = Math.min(this.cursor, m.domains - 1);
    this.layout();
  }

  select(selected) {
    this.selected = { job: -1, domain: -1, ...selected };
    this.later();
  }

  // layout gives each domain its place, left to right and top to bottom.
  layout() {
    const { m } = this;
    const cell = cells[this.zoom];
    const label = this.zoom === "small" ? 0 : this.zoom === "medium" ? 12 : 18;
    const gap = this.zoom === "small" ? 5 : this.zoom === "medium" ? 10 : 18;
    const width = this.box.clientWidth;
    if (width === 0) return;
    this.cell = cell;
    this.label = label;
    this.x = new Float32Array(m.domains);
    this.y = new Float32Array(m.domains);
    this.w = new Float32Array(m.domains);
    this.tall = new Float32Array(m.domains);
    this.headers = [];
    const several = new Set(m.map.domains.cluster).size > 1;
    let x = gap;
    let y = gap / 2;
    let line = 0;
    for (let d = 0; d < m.domains; d++) {
      const nodes = m.map.domains.first_node[d + 1] - m.map.domains.first_node[d];
      const columns = Math.ceil(nodes / rowsMost);
      const w = columns * m.columns * cell + (columns - 1) * cell;
      const tall = Math.min(nodes, rowsMost) * cell + label;
      const newCluster = several && (d === 0 || m.map.domains.cluster[d] !== m.map.domains.cluster[d - 1]);
      if (newCluster || (x + w + gap > width && x > gap)) {
        if (d > 0) y += line + gap;
        x = gap;
        line = 0;
        if (newCluster) {
          this.headers.push({ text: m.map.domains.cluster[d], y: y + 12 });
          y += 20;
        }
      }
      this.x[d] = x;
      this.y[d] = y;
      this.w[d] = w;
      this.tall[d] = tall;
      x += Math.max(w, this.zoom === "large" ? 56 : 0) + gap;
      line = Math.max(line, tall);
    }
    this.height = y + line + gap;
    this.spacer.style.height = `${this.height}px`;
    const most = Math.max(240, Math.round(innerHeight * 0.72));
    this.box.style.height = `${Math.min(this.height, most)}px`;
    this.later();
  }

  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  pattern(c, style) {
    if (!this.tiles.has(style)) {
      // A cross on three pixels would be a blot.
      const t = this.zoom === "small" && style.pattern === "cross" ? null : tile(style, this.scale * (this.zoom === "large" ? 1 : 0.7));
      this.tiles.set(style, t ? c.createPattern(t, "repeat") : style.fill);
    }
    return this.tiles.get(style);
  }

  draw() {
    const { m, cell } = this;
    if (!m || !this.x) return;
    const scale = devicePixelRatio || 1;
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    if (this.scale !== scale) this.tiles.clear();
    this.scale = scale;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const css = getComputedStyle(this.canvas);
    this.ink = css.getPropertyValue("--ink").trim();
    this.line = css.getPropertyValue("--line-strong").trim();
    this.panel = css.getPropertyValue("--panel").trim();
    const c = this.canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    const top = this.box.scrollTop;
    c.translate(0, -top);
    c.textBaseline = "alphabetic";
    c.font = "600 13px system-ui, sans-serif";
    c.fillStyle = this.ink;
    for (const header of this.headers) c.fillText(`Cluster ${header.text}`, 8, header.y);
    const dim = this.selected.job >= 0;
    for (let d = 0; d < m.domains; d++) {
      if (this.y[d] + this.tall[d] < top || this.y[d] > top + height) continue;
      this.drawDomain(c, d, dim);
    }
    c.globalAlpha = 1;
    if (dim) this.drawLinks(c, [this.selected.job]);
    else if (this.lines) this.drawLinks(c, worst(m));
    if (!this.drawn) performance.mark("map-drawn"); // for who measures how soon it is there
    this.drawn = true;
  }

  drawDomain(c, d, dim) {
    const { m, cell } = this;
    const x0 = this.x[d];
    const y0 = this.y[d] + this.label;
    const rows = this.tall[d] - this.label;
    c.globalAlpha = 1;
    if (this.label) {
      c.fillStyle = this.ink;
      c.font = this.zoom === "large" ? "12px system-ui, sans-serif" : "9px system-ui, sans-serif";
      c.fillText(m.names[d], x0, y0 - 4, Math.max(this.w[d], this.zoom === "large" ? 72 : 36));
    }
    c.lineWidth = 1;
    c.strokeStyle = this.line;
    c.strokeRect(x0 - 1.5, y0 - 1.5, this.w[d] + 2, rows + 2);
    if (this.selected.domain === d || (this.cursor === d && document.activeElement === this.canvas)) {
      c.lineWidth = this.zoom === "small" ? 2 : 3;
      c.strokeStyle = this.ink;
      c.strokeRect(x0 - 3.5, y0 - 3.5, this.w[d] + 6, rows + 6);
    }
    const gap = this.zoom === "small" ? 0.5 : 1;
    const first = m.map.domains.first_node[d];
    const last = m.map.domains.first_node[d + 1];
    c.font = "600 9px system-ui, sans-serif";
    for (let n = first; n < last; n++) {
      const at = n - first;
      let x = x0 + Math.floor(at / rowsMost) * (m.columns + 1) * cell;
      const y = y0 + (at % rowsMost) * cell;
      for (const part of parts(m, n)) {
        const style = part.job >= 0 ? this.colours.ofJob[part.job] : kinds[part.kind];
        const w = part.gpus * cell;
        c.globalAlpha = dim && part.job !== this.selected.job ? 0.18 : 1;
        if (part.kind === "free") {
          if (this.zoom !== "small") {
            c.strokeStyle = this.line;
            c.lineWidth = 1;
            for (let g = 0; g < part.gpus; g++) c.strokeRect(x + g * cell + 0.5, y + 0.5, cell - gap - 1, cell - gap - 1);
          }
        } else if (part.kind === "lost") {
          c.strokeStyle = this.ink;
          c.lineWidth = 0.8;
          c.setLineDash([2, 2]);
          c.strokeRect(x + 0.5, y + 0.5, w - gap - 1, cell - gap - 0.5);
          c.setLineDash([]);
          if (cell >= 10) this.letter(c, "?", this.ink, x, y);
        } else {
          c.fillStyle = this.pattern(c, style);
          if (cell < 7) c.fillRect(x, y, w - gap, cell - gap);
          else for (let g = 0; g < part.gpus; g++) c.fillRect(x + g * cell, y, cell - gap, cell - gap);
          if (cell >= 10 && style.letter) this.letter(c, style.letter, style.ink, x, y, style.fill);
        }
        x += w;
      }
    }
  }

  // letter marks the first GPU of a part, on a plain ground so that a pattern does not hide it.
  letter(c, text, ink, x, y, ground) {
    const { cell } = this;
    if (ground) {
      c.fillStyle = ground;
      c.fillRect(x + 1.5, y + 1, cell - 4, cell - 3);
    }
    c.fillStyle = ink;
    c.textAlign = "center";
    c.fillText(text, x + (cell - 1) / 2, y + cell - 4, cell - 2);
    c.textAlign = "left";
  }

  // drawLinks joins the racks of a job, the largest shard to each of the others.
  drawLinks(c, list) {
    const { m } = this;
    const strong = list.length === 1;
    for (const job of list) {
      const parts = [...m.shards[job]].sort((a, b) => (b[1] ?? 0) - (a[1] ?? 0));
      if (parts.length < 2) continue;
      const centre = (d, i) => [this.x[d] + this.w[d] / 2, this.y[d] + this.label + (this.tall[d] - this.label) * (strong ? 0.5 : 0.25 + 0.5 * ((job * 7 + i) % 10) / 10)];
      const [hx, hy] = centre(parts[0][0], 0);
      for (const [ink, w] of [[this.panel, strong ? 5 : 3], [this.ink, strong ? 2 : 1.2]]) {
        c.strokeStyle = ink;
        c.lineWidth = w;
        c.globalAlpha = strong ? 1 : 0.8;
        c.beginPath();
        parts.slice(1).forEach(([d], i) => {
          const [x, y] = centre(d, i + 1);
          c.moveTo(hx, hy);
          c.quadraticCurveTo((hx + x) / 2, Math.min(hy, y) - (Math.abs(hy - y) < 5 ? 18 : 0), x, y);
        });
        c.stroke();
      }
      c.globalAlpha = 1;
      parts.forEach(([d], i) => {
        const [x, y] = centre(d, i);
        c.fillStyle = this.ink;
        c.strokeStyle = this.panel;
        c.lineWidth = 1.5;
        c.beginPath();
        c.arc(x, y, i === 0 ? 5 : 3.5, 0, 7);
        c.fill();
        c.stroke();
        if (strong && this.zoom !== "small") {
          const text = `${parts[i][1] ?? "?"}`;
          c.font = "700 12px system-ui, sans-serif";
          const w = c.measureText(text).width + 8;
          c.fillStyle = this.ink;
          c.fillRect(x - w / 2, y - 9, w, 18);
          c.fillStyle = this.panel;
          c.textAlign = "center";
          c.fillText(text, x, y + 4);
          c.textAlign = "left";
        }
      });
    }
  }

  // hit gives the domain, node and job under a point of the canvas.
  hit(event) {
    const { m, cell } = this;
    const frame = this.canvas.getBoundingClientRect();
    const px = event.clientX - frame.left;
    const py = event.clientY - frame.top + this.box.scrollTop;
    if (!m) return null;
    for (let d = 0; d < m.domains; d++) {
      if (px < this.x[d] - 2 || px > this.x[d] + this.w[d] + 2 || py < this.y[d] - 2 || py > this.y[d] + this.tall[d] + 2) continue;
      const column = Math.floor((px - this.x[d]) / ((m.columns + 1) * cell));
      const row = Math.floor((py - this.y[d] - this.label) / cell);
      const n = m.map.domains.first_node[d] + column * rowsMost + row;
      if (row < 0 || row >= rowsMost || n >= m.map.domains.first_node[d + 1]) return { domain: d, node: -1, job: -1 };
      let gpu = Math.floor((px - this.x[d] - column * (m.columns + 1) * cell) / cell);
      for (const part of parts(m, n)) {
        if (gpu < part.gpus) return { domain: d, node: n, job: part.job, kind: part.kind };
        gpu -= part.gpus;
      }
      return { domain: d, node: n, job: -1 };
    }
    return null;
  }

  hover(event) {
    const at = this.hit(event);
    this.canvas.style.cursor = at ? "pointer" : "default";
    this.tip.hidden = !at;
    if (!at) return;
    this.tip.replaceChildren(...this.onHover(at).map((line) => h("div", null, line)));
    const frame = this.element.getBoundingClientRect();
    const left = Math.min(event.clientX - frame.left + 14, frame.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${event.clientY - frame.top + 16}px`;
  }

  pick(event) {
    const at = this.hit(event);
    if (at) this.cursor = at.domain;
    this.onPick(at ?? { domain: -1, job: -1 }, false);
  }

  key(event) {
    const { m } = this;
    if (!m || m.domains === 0) return;
    const step = { ArrowRight: () => this.cursor + 1, ArrowLeft: () => this.cursor - 1, ArrowDown: () => this.nextLine(1), ArrowUp: () => this.nextLine(-1), Home: () => 0, End: () => m.domains - 1 }[event.key];
    if (step) {
      event.preventDefault();
      this.cursor = Math.max(0, Math.min(m.domains - 1, step()));
      this.tell();
      this.into(this.cursor);
      this.onPick({ domain: this.cursor, job: -1 }, false);
    } else if (event.key === "Enter" && this.cursor >= 0) {
      event.preventDefault();
      this.onPick({ domain: this.cursor, job: -1 }, true);
    } else if (event.key === "Escape") {
      this.onPick({ domain: -1, job: -1 }, false);
    }
    this.later();
  }

  // nextLine is the rack above or below that is nearest.
  nextLine(direction) {
    let best = this.cursor;
    let distance = Infinity;
    for (let d = 0; d < this.m.domains; d++) {
      const dy = (this.y[d] - this.y[this.cursor]) * direction;
      if (dy <= 0) continue;
      const far = dy * 10 + Math.abs(this.x[d] - this.x[this.cursor]);
      if (far < distance) [best, distance] = [d, far];
    }
    return best;
  }

  into(d) {
    const { box } = this;
    if (this.y[d] < box.scrollTop) box.scrollTop = this.y[d] - 8;
    else if (this.y[d] + this.tall[d] > box.scrollTop + box.clientHeight) box.scrollTop = this.y[d] + this.tall[d] - box.clientHeight + 8;
  }

  // tell puts the rack under the cursor in the canvas's name, which screen readers read out.
  tell() {
    if (!this.m || this.cursor < 0 || this.cursor >= this.m.domains) return;
    this.canvas.setAttribute("aria-label", `Rack map. ${this.onHover({ domain: this.cursor, node: -1, job: -1 }).join(". ")}`);
  }
}
