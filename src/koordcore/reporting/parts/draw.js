// What all views share: the data with names in place of numbers, elements, amounts, cards.
const D = JSON.parse(document.getElementById("data").textContent);
const WHOLE = 1000;

function h(tag, given, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") made.style.cssText = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
  return made;
}
const text = (number) => (number === undefined ? "" : D.texts[number]);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// --- amounts ---------------------------------------------------------------------------------------------

function bytes(value) {
  const units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return String(Math.round(value * 10) / 10) + units[unit];
}
function amount(resource, value) {
  if (value === null || value === undefined) return "–";
  if (resource === "cpu") return String(value / 1000);
  if (resource.endsWith("batch-cpu") || resource.endsWith("mid-cpu")) return `${value}m`;
  if (/(memory|storage)$/.test(resource) || resource.includes("hugepages")) return bytes(value);
  return String(value);
}
const short = (resource) => resource.slice(resource.lastIndexOf("/") + 1);
function asked(number) {
  const shape = D.shapes[number];
  const first = ["cpu", "memory"].filter((name) => name in shape);
  const names = [...first, ...Object.keys(shape).filter((name) => !first.includes(name))];
  const told = (name) => {
    if (name.startsWith("claim ")) return name;
    return name === "memory" ? bytes(shape[name]) : `${amount(name, shape[name])} ${short(name)}`;
  };
  return names.map(told).join(", ") || "nothing";
}
const cardsText = (milli) => String(Math.round(milli / 10) / 100);

// --- who is who ------------------------------------------------------------------------------------------

const podName = (who) => (typeof who === "string" ? who : `${D.texts[D.pods[who][0]]}/${D.pods[who][1]}`);
const nodeName = (row) => (typeof row === "string" ? row : row < 0 ? "" : D.nodes[row].n);
const podsOn = D.nodes.map(() => []);
D.pods.forEach((pod, number) => { if (pod[2] >= 0) podsOn[pod[2]].push(number); });
const jobText = (number) => (number < 0 ? "" : D.jobs[number][1]);
const jobOf = (who) => (typeof who === "string" ? -1 : D.pods[who][3]);

// Hues that colour-blind eyes tell apart (after Okabe and Ito), gangs first, then again lighter and darker.
const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a800", "#7a5fd0"];
const MIXES = [null, ["#ffffff", 38], ["#000000", 32]];
const colours = new Map();
{
  const order = D.jobs.map((job, number) => number);
  order.sort((a, b) => (D.jobs[b][0] === "gang") - (D.jobs[a][0] === "gang") || a - b);
  order.forEach((number, place) => {
    const hue = HUES[place % HUES.length];
    const mix = MIXES[Math.floor(place / HUES.length) % MIXES.length];
    colours.set(number, mix ? `color-mix(in srgb, ${hue}, ${mix[0]} ${mix[1]}%)` : hue);
  });
}
// Pods by themselves are grey, neighbours in different greys.
const GREYS = ["var(--lone)", "color-mix(in srgb, var(--lone), #ffffff 32%)", "color-mix(in srgb, var(--lone), #000000 28%)"];
const colourOf = (who) => colours.get(jobOf(who)) || GREYS[typeof who === "string" ? 0 : who % 3];

// --- cards -----------------------------------------------------------------------------------------------

const usesOf = (card) => card.slice(5);
const broken = (card) => (card[4] & 1) === 1;
const parted = (card) => (card[4] & 2) === 2;
const taken = (card) => Math.min(WHOLE, usesOf(card).reduce((sum, use) => sum + use[1], 0));
const idle = (card) => (broken(card) ? 0 : WHOLE - taken(card));
const beside = (card) => /^(rdma|fpga)$|nic|net/.test(text(card[1]));
const mainCards = (cards) => {
  const main = (cards || []).filter((card) => !beside(card));
  return main.length ? main : cards || [];
};
// Where no card is known exactly, that is said once and not marked on every card.
const UNSURE = D.nodes.some((node) => (node.c || []).some((card) => usesOf(card).some((use) => use.length > 2)));
const SURE = D.nodes.some((node) => (node.c || []).some((card) => usesOf(card).some((use) => use.length === 2)));
function cardTip(card) {
  const name = `${text(card[1])} ${card[0]}`;
  if (broken(card)) return `${name}: broken or tainted`;
  const uses = usesOf(card).map((use) => {
    const sure = use.length < 3 ? "" : " (which card is not known)";
    return `${podName(use[0])}${use[1] < WHOLE ? ` ${use[1] / 10} %` : ""}${sure}`;
  });
  const left = idle(card);
  if (left) uses.push(left === WHOLE ? "idle" : `${left / 10} % idle`);
  return [name, ...uses].join("\n");
}
function fill(card) {
  let start = 0;
  const stops = [];
  for (const use of usesOf(card)) {
    const end = Math.min(100, start + use[1] / 10);
    stops.push(`${colourOf(use[0])} ${start}% ${end}%`);
    start = end;
  }
  if (start < 100) stops.push(`transparent ${start}% 100%`);
  return `linear-gradient(to top, ${stops.join(", ")})`;
}
function drawCard(card, { vain = false, hit = null, big = false } = {}) {
  const uses = usesOf(card);
  const names = ["card"];
  if (big) names.push("big");
  if (broken(card)) names.push("broken");
  else if (uses.length && taken(card) === WHOLE) names.push("full");
  if (parted(card)) names.push("parted");
  if (SURE && uses.some((use) => use.length > 2)) names.push("unsure");
  if (vain && idle(card)) names.push("vain");
  if (hit) names.push(uses.some((use) => hit(use[0])) ? "hit" : "faint");
  const made = h("i", { class: names.join(" ") });
  if (uses.length && !broken(card)) {
    const hatched = vain && idle(card) ? ", repeating-linear-gradient(45deg, var(--hatch) 0 1.5px, transparent 1.5px 4.5px)" : "";
    made.style.backgroundImage = fill(card) + hatched;
  }
  made.tip = () => cardTip(card);
  return made;
}
function nodeSums(row) {
  const node = D.nodes[row];
  const sums = { cards: 0, idle: 0, vain: (node.v || 0), broken: 0 };
  for (const card of mainCards(node.c)) {
    if (beside(card)) continue;
    sums.cards += 1;
    sums.idle += idle(card);
    sums.broken += broken(card) ? 1 : 0;
  }
  return sums;
}
const SUMS = D.nodes.map((_, row) => nodeSums(row));
function addUp(rows) {
  const sums = { nodes: rows.length, cards: 0, idle: 0, vain: 0, broken: 0, pods: 0 };
  for (const row of rows) {
    for (const name of ["cards", "idle", "vain", "broken"]) sums[name] += SUMS[row][name];
    sums.pods += podsOn[row].length;
  }
  return sums;
}
const inVain = (row) => SUMS[row].idle > 0 && 2 * SUMS[row].vain >= SUMS[row].idle;

// Long lists are drawn when they come into view.
const waiting = new WeakMap();
const watcher = "IntersectionObserver" in window ? new IntersectionObserver((seen) => {
  for (const one of seen) {
    if (!one.isIntersecting) continue;
    watcher.unobserve(one.target);
    waiting.get(one.target)();
  }
}, { rootMargin: "800px" }) : null;
function later(element, height, draw) {
  if (!watcher) { draw(); return element; }
  element.style.minHeight = `${height}px`;
  waiting.set(element, () => { element.style.minHeight = ""; draw(); });
  watcher.observe(element);
  return element;
}
