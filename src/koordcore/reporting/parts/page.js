// The address says what is shown: everything can be linked to, and the back button works.
const VIEWS = [
  ["cluster", "Cluster", clusterView, () => D.nodes.length],
  ["queue", "Queue", queueView, () => D.queue.length],
  ["gangs", "Gangs", gangsView, () => D.gangs.rows.length],
  ["quotas", "Quotas", quotaView, () => new Set(D.quotas.flatMap((tree_) => tree_.rows.map((row) => row.quota))).size],
  ["plans", "Plans", plansView, () => D.plans.length],
];
const EMPTY = { view: "cluster", q: "", show: "", outcome: "", node: "", pod: "", quota: "", resource: "", plan: "", step: "" };
const ASIDE = ["node", "pod", "quota"];
const search = document.getElementById("search"), side = document.getElementById("side");
let state = null;

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(Object.entries(EMPTY).map(([name, value]) => [name, given.get(name) ?? value]));
}
function address(wanted) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) if (value !== EMPTY[name]) given.set(name, value);
  return `#${given}`;
}
function go(change, replace = false) {
  const wanted = { ...read(), ...change };
  if (change.quota === undefined && (change.node || change.pod)) wanted.quota = "";
  history[replace ? "replaceState" : "pushState"](null, "", address(wanted));
  draw();
}

function nodeSide(name) {
  const row = D.nodes.findIndex((node) => node.n === name);
  if (row < 0) return [h("h2", null, name), h("p", null, "No such node.")];
  const node = D.nodes[row], sums = SUMS[row], places = new Map();
  for (const card of node.c || []) {
    const where = [card[2] >= 0 ? `NUMA ${card[2]}` : "", text(card[3]) && `PCIe ${text(card[3])}`].filter(Boolean).join(", ");
    if (!places.has(where)) places.set(where, []);
    places.get(where).push(card);
  }
  const rooms = D.resources.names.map((resource, number) => [resource, D.resources.whole[number][row], D.resources.used[number][row]])
    .filter(([, whole, used], number) => (whole || used) && !((node.c || []).length && D.resources.cards[number]));
  return [h("h2", null, node.n), node.x && h("p", { class: "warn" }, node.x), domainPath(row) && h("p", { class: "dim" }, domainPath(row)),
    node.m !== undefined && h("p", null, text(node.m)), (node.t || []).map((one) => h("p", { class: "dim" }, `taint ${text(one)}`)),
    (node.c || []).length > 0 && [h("h3", null, "Cards"),
      sums.idle > 0 && sums.vain >= 10 && h("p", { class: "dim" }, `${cardsText(sums.vain)} of ${cardsText(sums.idle)} idle cards are in vain: if the pods of this cluster are the work to expect, that much could not be used here`),
      [...places].map(([where, cards]) => [where && h("div", { class: "dim" }, where), cards.map((card) =>
        h("div", { class: "slot" }, drawCard(card, { big: true, vain: inVain(row) && !beside(card) }), h("span", null, h("b", null, `${text(card[1])} ${card[0]} `),
          broken(card) ? h("span", { class: "bad" }, "broken or tainted") : usesOf(card).map((use, place) => [place > 0 && ", ", toPod(use[0]), use[1] < WHOLE && ` ${use[1] / 10} %`,
            SURE && use.length > 2 && h("span", { class: "dim" }, " (which card is not known)")]),
          !broken(card) && idle(card) > 0 && h("span", { class: "dim" }, usesOf(card).length ? ` · ${idle(card) / 10} % idle` : "idle"))))])],
    h("h3", null, "Room"), rooms.map(([resource, whole, used]) => h("div", { class: "amount" }, `${resource}: ${amount(resource, used)} of ${amount(resource, whole)}`,
      h("div", { class: "bar" }, h("i", { style: `width:${percent(used, whole)}%` })))),
    h("h3", null, plural(podsOn[row].length, "pod")), h("ul", null, podsOn[row].map((pod) => h("li", null, toPod(pod), " ", h("span", { class: "dim" }, asked(D.pods[pod][4])))))];
}
function podSide(name) {
  const number = D.pods.findIndex((_, place) => podName(place) === name);
  if (number < 0) return [h("h2", null, name), h("p", null, "No such pod.")];
  const pod = D.pods[number], place = D.queue.findIndex((one) => one.p === number), one = D.queue[place];
  const node = pod[2] >= 0 ? pod[2] : one && one.n;
  return [h("h2", null, name), one && h("p", null, badge(one.o), ` · ${place + 1} of ${D.queue.length} in the queue`),
    h("dl", { class: "facts" }, node !== undefined && [h("dt", null, "node"), h("dd", null, toNode(node))], h("dt", null, "asks for"), h("dd", null, asked(pod[4])),
      pod[3] >= 0 && [h("dt", null, D.jobs[pod[3]][0] === "gang" ? "gang" : "workload"), h("dd", null, h("button", { class: "link", type: "button",
        onclick: () => go({ view: "cluster", q: D.jobs[pod[3]][1], pod: "" }) }, jobText(pod[3])))],
      h("dt", null, "priority"), h("dd", null, pod[5]), one && startText(one) && [h("dt", null, "starts"), h("dd", null, startText(one))]),
    one && one.w !== undefined && text(one.w) && h("p", null, text(one.w)), one && nearText(one.near) && h("p", { class: "dim" }, nearText(one.near)),
    one && one.o !== "placed" && h("p", { class: "dim" }, "What would help: ", h("code", null, `koordcore explain ${name} DUMP`))];
}
function drawSide() {
  const kind = ASIDE.find((name) => state[name]);
  side.hidden = !kind;
  if (!kind) return;
  const inside = kind === "node" ? nodeSide(state.node) : kind === "pod" ? podSide(state.pod) : waterfall(state);
  side.replaceChildren(h("button", { class: "close", type: "button", "aria-label": "Close", onclick: () => go({ node: "", pod: "", quota: "" }) }, "×"),
    ...inside.flat(Infinity).filter(Boolean));
  side.scrollTop = 0;
}
const showTab = () => document.querySelector('#tabs [aria-selected="true"]').scrollIntoView({ block: "nearest", inline: "nearest" });
function draw() {
  const before = state;
  state = read();
  if (!VIEWS.some(([name]) => name === state.view)) state.view = "cluster";
  if (document.activeElement !== search) search.value = state.q;
  document.getElementById("tabs").replaceChildren(...VIEWS.map(([name, told, , count]) => h("button", { type: "button", role: "tab", id: `tab-${name}`,
    "aria-selected": String(name === state.view), onclick: () => go({ view: name, node: "", pod: "", quota: "" }) }, told, h("small", null, count().toLocaleString("en")))));
  showTab();
  const own = Object.keys(EMPTY).filter((name) => !ASIDE.includes(name));
  if (!before || own.some((name) => before[name] !== state[name])) {
    const view = VIEWS.find(([name]) => name === state.view)[2];
    document.getElementById("view").replaceChildren(...[view(state)].flat(Infinity).filter(Boolean));
  }
  drawSide();
}

let typing = 0;
search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => go({ q: search.value.trim() }, true), 120); });
addEventListener("resize", showTab);
addEventListener("popstate", draw);
addEventListener("hashchange", draw);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !side.hidden) go({ node: "", pod: "", quota: "" });
  if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
const tip = h("div", { id: "tip", hidden: true });
document.body.append(tip);
addEventListener("pointermove", (event) => {
  const told = event.pointerType !== "touch" && event.target.tip;
  tip.hidden = !told;
  if (!told) return;
  tip.textContent = told();
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
});
draw();
