// Colours and patterns of the pictures. The eight hues are Okabe and Ito's, which people with any common colour vision
// tell apart; a pattern or a letter always says the same as the colour.

const hues = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d1f", "#6f6f6f"];
const inks = ["#fff", "#000", "#fff", "#000", "#000", "#fff", "#fff", "#fff"];

export const kinds = {
  ok: { fill: "#0072b2", ink: "#ffffff", pattern: "plain", letter: "", word: "in one domain" },
  spread: { fill: "#009e73", ink: "#ffffff", pattern: "dots", letter: "=", word: "spread over the fewest domains" },
  spill: { fill: "#d55e00", ink: "#ffffff", pattern: "stripes", letter: "!", word: "spilled, cause not known" },
  unknown: { fill: "#f0e442", ink: "#1b1f24", pattern: "grid", letter: "?", word: "verdict unknown" },
  none: { fill: "#8a94a0", ink: "#000000", pattern: "plain", letter: "-", word: "not judged" },
  probe: { fill: "#cc79a7", ink: "#000000", pattern: "dots", letter: "p", word: "probe job, may be evicted" },
  free: { fill: null, ink: null, pattern: "plain", letter: "", word: "free" },
  down: { fill: "#5b646e", ink: "#ffffff", pattern: "cross", letter: "x", word: "out of service" },
  lost: { fill: null, ink: null, pattern: "question", letter: "?", word: "state not known" },
};

// A spill's letter is that of its cause.
for (const [cause, letter] of [["policy", "P"], ["timing", "T"], ["repack", "R"], ["capacity", "C"]]) {
  kinds[`spill ${cause}`] = { ...kinds.spill, letter, word: `spilled by ${cause}` };
}

// codes are the letters of categories: A to Z, then AA, AB, ...
export function code(i) {
  let out = "";
  for (let n = i + 1; n > 0; n = Math.floor((n - 1) / 26)) out = String.fromCharCode(65 + ((n - 1) % 26)) + out;
  return out;
}

const patterns = ["plain", "stripes", "dots", "grid"];

// category gives the i-th of many groups its colour, pattern and letters.
export function category(i) {
  return {
    fill: hues[i % hues.length], ink: inks[i % hues.length],
    pattern: patterns[Math.floor(i / hues.length) % patterns.length], letter: code(i),
  };
}

// tile draws one pattern tile for a canvas; null where a plain colour does.
export function tile(style, scale) {
  if (style.pattern === "plain" || !style.fill) return null;
  const size = Math.round(6 * scale);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const c = canvas.getContext("2d");
  c.fillStyle = style.fill;
  c.fillRect(0, 0, size, size);
  c.strokeStyle = c.fillStyle = style.ink;
  c.globalAlpha = 0.55;
  c.lineWidth = Math.max(1, scale * 1.2);
  c.beginPath();
  switch (style.pattern) {
    case "stripes":
      for (const from of [-size, 0, size]) {
        c.moveTo(from, size);
        c.lineTo(from + size, 0);
      }
      c.stroke();
      break;
    case "dots":
      c.arc(size / 2, size / 2, size / 5, 0, 7);
      c.fill();
      break;
    case "grid":
      c.moveTo(0, size / 2);
      c.lineTo(size, size / 2);
      c.moveTo(size / 2, 0);
      c.lineTo(size / 2, size);
      c.stroke();
      break;
    case "cross":
      c.moveTo(0, 0);
      c.lineTo(size, size);
      c.moveTo(size, 0);
      c.lineTo(0, size);
      c.stroke();
      break;
  }
  return canvas;
}
